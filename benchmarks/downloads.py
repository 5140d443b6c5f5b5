"""Readers of large replies: one that is timed, or several at once in a process of their own.

`python -m benchmarks.downloads HOST PORT COUNT TARGET` reads the same target on COUNT connections
as fast as it can, each again as soon as it is through, until it is killed. It prints a line when
every reply has begun. One buffer serves all, so that a reader costs the kernel's copy.

Spec: docs/benchmark.md#records
"""

from __future__ import annotations

import contextlib
import selectors
import socket
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from typing import Final

from benchmarks.load import TIMEOUT_S, LoadError, Run
from tests.support.group import ROOT

_BUFFER_BYTES: Final = 1 << 20
_GIB: Final = 1 << 30


class Download:
    """One connection that reads a target once.

    Attributes:
        size_bytes: Of the body; 0 until the head is there.
    """

    def __init__(self, address: tuple[str, int], target: str) -> None:
        """Connect and ask.

        Raises:
            OSError: No connection.
        """
        self.sock = socket.create_connection(address, timeout=TIMEOUT_S)
        self.sock.sendall(f"GET {target} HTTP/1.1\r\nhost: {address[0]}\r\n\r\n".encode())
        self.size_bytes = 0
        self._left_bytes = 0

    def read(self, buffer: memoryview) -> bool:
        """Read what is there.

        Returns:
            Whether the reply is at its end.

        Raises:
            LoadError: The status is not 200, or the reply ended early.
            OSError: The connection failed.
        """
        count = self.sock.recv_into(buffer)
        if not count:
            raise LoadError(f"the reply ended {self._left_bytes} bytes early")
        if not self.size_bytes:
            count -= self._read_head(bytes(buffer[:count]))
        self._left_bytes -= count
        return self._left_bytes <= 0

    def _read_head(self, data: bytes) -> int:
        head, end, _ = data.partition(b"\r\n\r\n")
        if not end or not head.startswith(b"HTTP/1.1 200 "):
            raise LoadError(f"the reply begins with {data[:60]!r}")
        for line in head.lower().split(b"\r\n"):
            if line.startswith(b"content-length:"):
                self.size_bytes = self._left_bytes = int(line.partition(b":")[2])
        if not self.size_bytes:
            raise LoadError("the reply states no length")
        return len(head) + len(end)


def time_download(address: tuple[str, int], target: str) -> Run:
    """Read a target once, timed; counted in GiB.

    Raises:
        LoadError: As `Download.read`.
    """
    buffer = memoryview(bytearray(_BUFFER_BYTES))
    begin = time.perf_counter()
    download = Download(address, target)
    with download.sock:
        while not download.read(buffer):
            pass
    return Run(count=download.size_bytes / _GIB, duration_s=time.perf_counter() - begin)


@contextlib.contextmanager
def downloading(address: tuple[str, int], count: int, target: str) -> Iterator[None]:
    """Downloads that go on while the block runs.

    Raises:
        LoadError: They did not begin, or ended before the block did.
    """
    host, port = address
    command = [sys.executable, "-m", "benchmarks.downloads", host, str(port), str(count), target]
    readers = subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True)
    try:
        if readers.stdout is None or not readers.stdout.readline():
            raise LoadError("the downloads did not begin")
        yield
        if readers.poll() is not None:
            raise LoadError("the downloads ended early")
    finally:
        readers.kill()
        readers.communicate()


def read_for_ever(address: tuple[str, int], count: int, target: str) -> None:
    """Read a target on so many connections, again and again.

    Raises:
        LoadError: As `Download.read`.
        OSError: A connection failed.
    """
    buffer = memoryview(bytearray(_BUFFER_BYTES))
    begun: set[int] = set()
    with selectors.DefaultSelector() as selector:
        for number in range(count):
            _ask(selector, address, target, number)
        while True:
            for key, _ in selector.select(TIMEOUT_S):
                download, number = key.data
                if download.read(buffer):
                    selector.unregister(download.sock)
                    download.sock.close()
                    _ask(selector, address, target, number)
                if number not in begun:
                    begun.add(number)
                    if len(begun) == count:
                        print("begun", flush=True)


def _ask(
    selector: selectors.BaseSelector, address: tuple[str, int], target: str, number: int
) -> None:
    download = Download(address, target)
    selector.register(download.sock, selectors.EVENT_READ, (download, number))


def main(arguments: Sequence[str]) -> None:
    """Read as told on the command line."""
    host, port, count, target = arguments
    read_for_ever((host, int(port)), int(count), target)


if __name__ == "__main__":
    main(sys.argv[1:])
