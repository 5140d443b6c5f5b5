"""A reader of one large reply as a process of its own: as fast as it can, or slowly for ever.

`python -m benchmarks.reader HOST PORT SESSION BYTES PAUSE_S` reads into one buffer that it
uses again and again; with a pause it sleeps that long after every MiB. It prints a line when the
reply's first bytes are there, so that who measures beside it knows when to begin.

Spec: docs/benchmark.md#endurance
"""

from __future__ import annotations

import socket
import sys
import time
from collections.abc import Sequence
from typing import Final

_BUFFER_BYTES: Final = 1 << 20


def read_reply(address: tuple[str, int], session: str, size_bytes: int, pause_s: float) -> None:
    """Ask for a reply of `size_bytes` and read it to its end.

    Args:
        address: Of a server with the `cases` application.
        session: Whose shard answers.
        size_bytes: Of the reply.
        pause_s: Sleep this long after every MiB.

    Raises:
        OSError: The connection failed or was reset.
        EOFError: The reply ended early.
    """
    target = f"/sessions/{session}/big?bytes={size_bytes}"
    view = memoryview(bytearray(_BUFFER_BYTES))
    with socket.create_connection(address) as sock:
        sock.sendall(f"GET {target} HTTP/1.1\r\nhost: x\r\n\r\n".encode())
        left = size_bytes
        print("begun", flush=True)
        while left > 0:  # the head's bytes are counted too: they only end it sooner
            count = sock.recv_into(view)
            if not count:
                raise EOFError(f"{left} bytes are missing")
            left -= count
            if pause_s:
                time.sleep(pause_s * count / _BUFFER_BYTES)


def main(arguments: Sequence[str]) -> None:
    """Read as told on the command line."""
    host, port, session, size_bytes, pause_s = arguments
    read_reply((host, int(port)), session, int(size_bytes), float(pause_s))


if __name__ == "__main__":
    main(sys.argv[1:])
