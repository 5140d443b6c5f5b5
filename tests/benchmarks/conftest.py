"""What tests of benchmarks share."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest


@pytest.fixture
def short_folder() -> Iterator[Path]:
    """An empty folder; its path is short, since those of sockets have 107 bytes."""
    folder = Path(tempfile.mkdtemp(prefix="sesb", dir="/tmp"))
    yield folder
    shutil.rmtree(folder)
