"""How much room there is for replay: the memory of the machine or container, or the spool's disk.

Spec: docs/replay.md#budget
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Final

# Version 2 and version 1 of control groups, as a container sees its own.
_CGROUP_LIMITS: Final = ("memory.max", "memory/memory.limit_in_bytes")
_CGROUP_ROOT: Final = Path("/sys/fs/cgroup")


def memory_bytes(cgroup_root: Path = _CGROUP_ROOT) -> int:
    """Bytes of memory that this process may hope for, swap not counted.

    Args:
        cgroup_root: Where control groups are mounted.
    """
    machine = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    return min([machine, *_cgroup_limits(cgroup_root)])


def room_bytes(spool_dir: str) -> int:
    """Bytes that replay could fill: the size of the spool's file system, or the memory.

    Args:
        spool_dir: A folder that exists; empty for memory.

    Raises:
        OSError: The folder cannot be asked.
    """
    if not spool_dir:
        return memory_bytes()
    disk = os.statvfs(spool_dir)
    return disk.f_blocks * disk.f_frsize


def _cgroup_limits(root: Path) -> list[int]:
    found = []
    for name in _CGROUP_LIMITS:
        try:
            text = (root / name).read_text(encoding="ascii").strip()
        except (OSError, UnicodeDecodeError):
            continue
        if text.isdigit() and int(text):  # "max" is no limit
            found.append(int(text))
    return found
