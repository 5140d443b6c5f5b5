"""Processes that burn a core each, so that what is tried beside them gets little of it.

Spec: docs/benchmark.md#tools
"""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from benchmarks.processes import run_process

# Ends by itself when whoever started it is gone.
_BURN: Final = "import os; parent = os.getppid()\nwhile os.getppid() == parent: pass"


@contextlib.contextmanager
def open_burners(count: int, log: Path) -> Iterator[list[int]]:
    """Burn while the block runs; yields the pids.

    Args:
        count: How many processes.
        log: Gets what they write, which is nothing.
    """
    with contextlib.ExitStack() as stack:
        burners = [
            stack.enter_context(run_process([sys.executable, "-c", _BURN], log))
            for _ in range(count)
        ]
        yield [burner.pid for burner in burners]
