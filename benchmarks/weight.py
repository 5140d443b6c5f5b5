"""What a group weighs: its processes' share of memory, and the files that they hold open.

Memory that is shared counts once (PSS). A memfd is in a process's PSS only as far as it is mapped,
so its blocks are added and what is mapped of it is taken from the PSS: each page counts once.
Unlinked files on a disk are told apart.

Spec: docs/benchmark.md#production-shape
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Container, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Final, Self

from tests.support.processes import pss_bytes

_BLOCK_BYTES: Final = 512  # of st_blocks, whatever the file system
_MEMORY_SYSTEMS: Final = frozenset({"tmpfs", "ramfs", "devtmpfs", "hugetlbfs"})
_MEMFD: Final = "/memfd:"
_DELETED: Final = " (deleted)"


@dataclass(frozen=True, slots=True, kw_only=True)
class Weight:
    """Memory of some processes at one time.

    Attributes:
        at_s: On the monotonic clock.
        pss_bytes: Resident memory but that of the files below, each shared page divided among
            those that map it.
        memory_file_bytes: Blocks of memfds and of unlinked files in memory, each file once.
        disk_file_bytes: Blocks of unlinked files on disks.
    """

    at_s: float
    pss_bytes: int
    memory_file_bytes: int
    disk_file_bytes: int

    @property
    def memory_bytes(self) -> int:
        """All that is in memory."""
        return self.pss_bytes + self.memory_file_bytes


def read_weight(pids: Iterable[int]) -> Weight:
    """Weigh processes together.

    Raises:
        ProcessLookupError: One has ended.
    """
    known = list(pids)
    in_memory: dict[tuple[int, int], int] = {}
    on_disk: dict[tuple[int, int], int] = {}
    devices = _memory_devices()
    for pid in known:
        for target, found in _unlinked_files(pid):
            key = (found.st_dev, found.st_ino)
            is_memory = target.startswith(_MEMFD) or found.st_dev in devices
            (in_memory if is_memory else on_disk)[key] = found.st_blocks * _BLOCK_BYTES
    mapped_bytes = sum(_mapped_bytes(pid, in_memory) for pid in known)
    return Weight(
        at_s=time.monotonic(),
        pss_bytes=sum(pss_bytes(pid) for pid in known) - mapped_bytes,
        memory_file_bytes=sum(in_memory.values()),
        disk_file_bytes=sum(on_disk.values()),
    )


def _unlinked_files(pid: int) -> Iterable[tuple[str, os.stat_result]]:
    folder = f"/proc/{pid}/fd"
    try:
        names = os.listdir(folder)
    except FileNotFoundError:
        raise ProcessLookupError(pid) from None
    for name in names:
        try:
            target = os.readlink(f"{folder}/{name}")
            if target.endswith(_DELETED):  # a memfd's name ends like this too
                yield target, os.stat(f"{folder}/{name}")
        except FileNotFoundError:
            continue  # closed meanwhile


def _mapped_bytes(pid: int, files: Container[tuple[int, int]]) -> int:
    """A process's share of what is mapped of some files.

    Args:
        pid: The process.
        files: Device and inode of each.
    """
    found, is_one = 0, False
    for line in Path(f"/proc/{pid}/smaps").read_text().splitlines():
        name, *values = line.split()
        if not name.endswith(":"):  # a range of addresses: another mapping begins
            major, _, minor = values[2].partition(":")
            is_one = (os.makedev(int(major, 16), int(minor, 16)), int(values[3])) in files
        elif is_one and name == "Pss:":
            found += int(values[0]) * 1024
    return found


def _memory_devices() -> frozenset[int]:
    """Numbers of the devices whose files are in memory."""
    found = set()
    for line in Path("/proc/self/mountinfo").read_text().splitlines():
        before, _, after = line.partition(" - ")
        if after.split()[0] in _MEMORY_SYSTEMS:
            major, _, minor = before.split()[2].partition(":")
            found.add(os.makedev(int(major), int(minor)))
    return frozenset(found)


class WeightWatch:
    """Weighs processes again and again, in a thread, while its block runs.

    Args:
        pids: Of the processes, by name.
        every_s: Seconds between two weighings.
    """

    def __init__(self, pids: Mapping[str, int], every_s: float) -> None:
        self.weights: list[Weight] = []
        self._pids = list(pids.values())
        self._every_s = every_s
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._watch, daemon=True)

    def __enter__(self) -> Self:
        self.weights.append(read_weight(self._pids))
        self._thread.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._stop.set()
        self._thread.join()

    def _watch(self) -> None:
        while not self._stop.wait(self._every_s):
            try:
                self.weights.append(read_weight(self._pids))
            except ProcessLookupError:
                return  # whoever awaits replies will see that a member died
