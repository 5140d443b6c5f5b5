"""What /proc says of other processes, for tests and benchmarks.

Every reader raises ProcessLookupError when the process is gone. A zombie counts as gone: after a
kill of the arbiter its children are reaped by whoever adopted them, which may be never.

Spec: docs/architecture.md#tests
"""

from __future__ import annotations

import os
import select
import time
from collections.abc import Iterable
from pathlib import Path
from typing import Final

_TICKS_PER_S: Final = os.sysconf("SC_CLK_TCK")
_LISTEN: Final = "0A"


def _read(pid: int, name: str) -> str:
    try:
        return Path(f"/proc/{pid}/{name}").read_text()
    except FileNotFoundError:
        raise ProcessLookupError(pid) from None


def _stat(pid: int) -> list[str]:
    """The fields of /proc/<pid>/stat from the third (state) on; the second may hold spaces."""
    return _read(pid, "stat").rpartition(") ")[2].split()


def is_alive(pid: int) -> bool:
    """Whether the process exists and is not a zombie."""
    try:
        return _stat(pid)[0] not in "ZX"
    except ProcessLookupError:
        return False


def parent_of(pid: int) -> int:
    """The parent's pid."""
    return int(_stat(pid)[1])


def cpu_s(pid: int) -> float:
    """User and system CPU seconds of the process so far, in steps of one clock tick."""
    user, system = _stat(pid)[11:13]
    return (int(user) + int(system)) / _TICKS_PER_S


def thread_count(pid: int) -> int:
    """Threads of the process."""
    return int(_stat(pid)[17])


def descriptor_count(pid: int) -> int:
    """Open descriptors of the process."""
    try:
        return len(os.listdir(f"/proc/{pid}/fd"))
    except FileNotFoundError:
        raise ProcessLookupError(pid) from None


def rss_bytes(pid: int) -> int:
    """Resident memory, shared pages counted whole."""
    return _sum_kib(_read(pid, "status"), "VmRSS")


def pss_bytes(pid: int) -> int:
    """Resident memory, each shared page divided by the number of processes that map it."""
    return _sum_kib(_read(pid, "smaps_rollup"), "Pss")


def _sum_kib(text: str, key: str) -> int:
    lines = [line.split() for line in text.splitlines() if line.startswith(f"{key}:")]
    return sum(int(line[1]) for line in lines) * 1024


def children_of(pid: int) -> set[int]:
    """Live children of a process, found by their parent pid."""
    return {child for child in _pids() if _field_is(child, 1, pid)}


def session_members(session: int) -> set[int]:
    """Live processes of a POSIX session (its number is the pid of the process that made it)."""
    return {member for member in _pids() if _field_is(member, 3, session)}


def _pids() -> list[int]:
    return [int(name) for name in os.listdir("/proc") if name.isdigit()]


def _field_is(pid: int, field: int, value: int) -> bool:
    try:
        stat = _stat(pid)
    except ProcessLookupError:
        return False
    return stat[0] not in "ZX" and int(stat[field]) == value


def tcp_connection_count(pid: int) -> int:
    """How many IPv4 TCP connections a process holds, listeners not counted."""
    inodes = {target[8:-1] for target in _links(pid) if target.startswith("socket:[")}
    rows = [line.split() for line in _read(pid, "net/tcp").splitlines()[1:]]
    return sum(1 for row in rows if row[3] != _LISTEN and row[9] in inodes)


def listening_address(pid: int) -> tuple[str, int] | None:
    """The IPv4 address on which a process holds a TCP listener, or None; the first if many."""
    inodes = {target[8:-1] for target in _links(pid) if target.startswith("socket:[")}
    for line in _read(pid, "net/tcp").splitlines()[1:]:
        fields = line.split()
        if fields[3] == _LISTEN and fields[9] in inodes:
            host, port = fields[1].split(":")
            octets = bytes.fromhex(host)[::-1]  # the kernel prints it in little endian
            return ".".join(map(str, octets)), int(port, 16)
    return None


def _links(pid: int) -> Iterable[str]:
    for entry in Path(f"/proc/{pid}/fd").iterdir():
        try:
            yield str(entry.readlink())
        except FileNotFoundError:
            continue


def wait_exits(pidfds: Iterable[int], deadline_s: float) -> bool:
    """Wait until every process of these pidfds has ended.

    Args:
        pidfds: From os.pidfd_open; a pid that was used again cannot be mistaken.
        deadline_s: How long to wait at most.

    Returns:
        Whether all have ended.
    """
    end = time.monotonic() + deadline_s
    waiting = set(pidfds)
    while waiting:
        poll = select.poll()
        for pidfd in waiting:
            poll.register(pidfd, select.POLLIN)
        left_s = end - time.monotonic()
        ended = {pidfd for pidfd, _ in poll.poll(max(0.0, left_s) * 1000)}
        if not ended and left_s <= 0:
            return False
        waiting -= ended
    return True
