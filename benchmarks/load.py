"""The load: wrk for small requests, one cheap reader for a reply of many bytes.

wrk runs one thread and 32 connections, and asks for all sessions in turn on every connection, or
calls a tool of all episodes in turn (`mixed.lua`). The reader takes a reply into one buffer that it
uses again and again, so that its own cost is the kernel's copy. Nothing here knows which server
answers.

Spec: docs/benchmark.md#method
"""

from __future__ import annotations

import json
import shutil
import socket
import subprocess
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

CONNECTIONS: Final = 32
TIMEOUT_S: Final = 60.0
_SCRIPT: Final = Path(__file__).with_name("mixed.lua")
_BUFFER_BYTES: Final = 1 << 20
_REPLY_HEAD: Final = b"HTTP/1.1 200 "


class LoadError(Exception):
    """The load could not run, or a server did not answer it as it must."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Run:
    """One run of load.

    Attributes:
        count: Replies, or GiB of a large one.
        duration_s: From the first request to the last byte.
        p50_ms: Median time of a reply; 0 for a large one.
        p99_ms: The 99th percentile; 0 for a large one.
    """

    count: float
    duration_s: float
    p50_ms: float = 0.0
    p99_ms: float = 0.0


def run_wrk(
    address: tuple[str, int], *, duration_s: float, close: bool, named_by: Sequence[str] = ()
) -> Run:
    """Load a server with small requests.

    Args:
        address: Host and port.
        duration_s: How long; wrk takes whole seconds, the rest is dropped.
        close: Whether each request has a connection of its own.
        named_by: Instead of plain requests of sessions, calls of the tool `add`: the header that
            names an episode, then its value for each.

    Raises:
        LoadError: wrk is not installed or failed, or a reply was an error.
    """
    wrk = shutil.which("wrk")
    if wrk is None:
        raise LoadError("wrk is not installed (Debian package wrk)")
    host, port = address
    command = [wrk, "-t1", f"-c{CONNECTIONS}", f"-d{int(duration_s)}s", "-s", str(_SCRIPT)]
    command += [f"http://{host}:{port}", "--", "close" if close else "keep", *named_by]
    done = subprocess.run(
        command, capture_output=True, text=True, timeout=duration_s + TIMEOUT_S, check=False
    )
    if done.returncode:
        raise LoadError(f"wrk failed: {done.stderr.strip() or done.stdout.strip()}")
    return parse_wrk(done.stdout)


def parse_wrk(output: str) -> Run:
    """The run that the last line of wrk's output tells of.

    Raises:
        LoadError: A reply was an error, or there was none.
    """
    found = json.loads(output.strip().splitlines()[-1])
    if found["errors"] or not found["requests"]:
        raise LoadError(f"{found['errors']} errors and {found['requests']} replies")
    return Run(
        count=found["requests"],
        duration_s=found["duration_us"] / 1e6,
        p50_ms=found["p50_us"] / 1e3,
        p99_ms=found["p99_us"] / 1e3,
    )


def read_large(address: tuple[str, int], size_bytes: int) -> Run:
    """Ask for one reply of many bytes on a new connection, and read it to its end.

    Raises:
        LoadError: The status is not 200 or the reply ended early.
        OSError: No connection, or no byte came for a minute.
    """
    request = f"GET /sessions/bench-1/big?bytes={size_bytes} HTTP/1.1\r\nhost: {address[0]}\r\n\r\n"
    view = memoryview(bytearray(_BUFFER_BYTES))
    with socket.create_connection(address, timeout=TIMEOUT_S) as sock:
        start = time.perf_counter()
        sock.sendall(request.encode())
        head = b""
        while b"\r\n\r\n" not in head:
            piece = sock.recv(_BUFFER_BYTES)
            head += piece
            if not piece or not head.startswith(_REPLY_HEAD[: len(head)]):
                raise LoadError(f"the reply begins with {head[:60]!r}")
        left = size_bytes - (len(head) - head.index(b"\r\n\r\n") - 4)
        while left > 0:
            count = sock.recv_into(view)
            if not count:
                raise LoadError(f"the reply ended {left} bytes early")
            left -= count
        return Run(count=size_bytes / (1 << 30), duration_s=time.perf_counter() - start)
