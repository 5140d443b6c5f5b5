"""Fixtures of the tests that run a front."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from sessions.lending.board import Phase
from sessions.lending.group import Group
from tests.support.fronts import FrontStage, open_front
from tests.support.members import group_of


@pytest.fixture
def group(tmp_path: Path) -> Group:
    """A lone shard's group that is ready."""
    made = group_of(tmp_path, head_bytes=4096, head_timeout_s=15.0, idle_timeout_s=75.0)
    made.board.set_phase(1, Phase.READY, 1)
    made.board.beat(1)
    return made


@pytest.fixture
async def stage(group: Group) -> AsyncIterator[FrontStage]:
    async with open_front(group) as opened:
        yield opened
