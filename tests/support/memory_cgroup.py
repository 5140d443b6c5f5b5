"""A limit of memory for one process, as a container has it: beyond it the kernel kills.

Spec: docs/architecture.md#tests
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

_V1: Final = Path("/sys/fs/cgroup/memory")
_V2: Final = Path("/sys/fs/cgroup")


def can_limit_memory() -> bool:
    """Whether this machine lets us make a group of processes with a limit of memory."""
    try:
        with _made():
            return True
    except OSError:
        return False


@contextmanager
def memory_limit(pid: int, limit_bytes: int) -> Iterator[None]:
    """Limit what a process takes from now on; what it has already is not counted.

    Args:
        pid: The process.
        limit_bytes: More than that, and the kernel kills it.

    Raises:
        OSError: The machine does not let us.
    """
    with _made() as group:
        for name in ("memory.limit_in_bytes", "memory.max"):
            if (group / name).exists():
                (group / name).write_text(str(limit_bytes))
        (group / "cgroup.procs").write_text(str(pid))
        yield


@contextmanager
def _made() -> Iterator[Path]:
    """A group of our own below the first controller that lets us, empty again at the end."""
    root = _V1 if _V1.is_dir() else _V2
    group = root / f"sessile-tests-{os.getpid()}"
    group.mkdir(exist_ok=True)
    try:
        if not any((group / name).exists() for name in ("memory.limit_in_bytes", "memory.max")):
            raise OSError("no controller of memory")
        yield group
    finally:
        for left in (group / "cgroup.procs").read_text().split():
            (root / "cgroup.procs").write_text(left)
        group.rmdir()
