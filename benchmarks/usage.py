"""What processes used: CPU in nanoseconds, memory, and what the rest of the machine did.

CPU comes from the scheduler's own account (schedstat), since clock ticks of 10 ms are too coarse
for runs of a second. Nothing here knows servers or load.

Spec: docs/benchmark.md#method
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

_TICKS_PER_S: Final = os.sysconf("SC_CLK_TCK")
_SPENT, _WAITED = 0, 1  # of schedstat
_BUSY_FIELDS: Final = (1, 2, 3, 6, 7)  # of /proc/stat: user, nice, system, irq, softirq


@dataclass(frozen=True, slots=True, kw_only=True)
class Memory:
    """Resident memory of a process; pages that it shares with others count whole."""

    now_bytes: int
    peak_bytes: int


def read_cpu_s(pid: int) -> float:
    """CPU seconds of all threads of a process so far.

    Raises:
        ProcessLookupError: It has ended.
    """
    try:
        threads = list(Path(f"/proc/{pid}/task").iterdir())
        spent = [(thread / "schedstat").read_text().split()[_SPENT] for thread in threads]
    except FileNotFoundError:
        raise ProcessLookupError(pid) from None
    return sum(map(int, spent)) / 1e9


def read_wait_s(pid: int) -> float:
    """Seconds that the main thread of a process so far could have run and had no core.

    Raises:
        ProcessLookupError: It has ended.
    """
    try:
        return int(Path(f"/proc/{pid}/schedstat").read_text().split()[_WAITED]) / 1e9
    except FileNotFoundError:
        raise ProcessLookupError(pid) from None


def read_cpu_of(pids: Mapping[str, int]) -> dict[str, float]:
    """CPU seconds so far of several processes, by name.

    Raises:
        ProcessLookupError: One has ended.
    """
    return {name: read_cpu_s(pid) for name, pid in pids.items()}


def read_memory(pid: int) -> Memory:
    """Resident memory of a process, now and at its highest.

    Raises:
        ProcessLookupError: It has ended.
    """
    try:
        lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    except FileNotFoundError:
        raise ProcessLookupError(pid) from None
    kib = {line.split(":")[0]: line.split()[1] for line in lines if line.startswith("Vm")}
    return Memory(now_bytes=int(kib["VmRSS"]) * 1024, peak_bytes=int(kib["VmHWM"]) * 1024)


def read_busy_s() -> float:
    """CPU seconds that all processes of the machine spent so far."""
    fields = Path("/proc/stat").read_text().splitlines()[0].split()
    return sum(int(fields[index]) for index in _BUSY_FIELDS) / _TICKS_PER_S


def children_cpu_s() -> float:
    """CPU seconds of this process and of its children that have ended."""
    times = os.times()
    return times.user + times.system + times.children_user + times.children_system
