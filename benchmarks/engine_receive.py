"""What receiving an engine's reply costs: our client into a sink that does nothing, and httpx.

A process of its own sends 134 MiB over loopback, again and again; the two receivers take turns in
one loop (uvloop), so that both meet the same load of the machine. Prints CPU ms per MiB.

    python -m benchmarks.engine_receive [rounds] [chunk bytes]

Spec: docs/architecture.md#engine
"""

from __future__ import annotations

import multiprocessing
import socket
import statistics
import sys
import threading
import time
from collections.abc import Awaitable, Callable
from typing import Final

import httpx
import uvloop

from sessions.engine.engine import EngineRequest
from sessions.engine.http_engines import HttpEngines

BODY_MIB: Final = 134
_BLOCK_BYTES: Final = 1 << 20


class NoSink:
    """Takes everything and does nothing."""

    def feed(self, piece: memoryview) -> bool:
        """See `ReplySink`."""
        return bool(piece)

    async def wait_room(self) -> None:
        """Never asked for."""


def send_replies(listener: socket.socket, chunk_bytes: int) -> None:
    """Serve the body on every connection, for ever.

    Args:
        listener: Bound and listening.
        chunk_bytes: Send chunks of this size; 0 for a Content-Length.
    """
    block = b"A" * _BLOCK_BYTES
    head, end = f"content-length: {BODY_MIB * _BLOCK_BYTES}\r\n\r\n".encode(), b""
    if chunk_bytes:
        chunk = b"%x\r\n%b\r\n" % (chunk_bytes, b"A" * chunk_bytes)
        block = chunk * (_BLOCK_BYTES // chunk_bytes)
        head, end = b"transfer-encoding: chunked\r\n\r\n", b"0\r\n\r\n"

    def serve(connection: socket.socket) -> None:
        with connection:
            while connection.recv(65536).endswith(b"\r\n\r\n"):
                connection.sendall(b"HTTP/1.1 200 OK\r\n" + head)
                for _ in range(BODY_MIB):
                    connection.sendall(block)
                connection.sendall(end)

    while True:
        threading.Thread(target=serve, args=(listener.accept()[0],), daemon=True).start()


async def compare(port: int, rounds: int) -> None:
    """Receive by turns, and print the median of each way."""
    url = f"http://127.0.0.1:{port}/"
    ours = HttpEngines([url], timeout_s=60, connect_timeout_s=5)
    theirs = httpx.AsyncHTTPTransport()
    request = EngineRequest(method="GET", target=b"/", headers=[], body=b"")

    async def receive_ours() -> None:
        await ours.exchange(request, lambda *_: NoSink())

    async def receive_theirs() -> None:
        reply = await theirs.handle_async_request(httpx.Request("GET", url))
        await reply.aread()

    ways: dict[str, Callable[[], Awaitable[None]]] = {"ours": receive_ours, "httpx": receive_theirs}
    spent: dict[str, list[float]] = {name: [] for name in ways}
    for _ in range(rounds + 1):  # the first one warms up
        for name, receive in ways.items():
            before = time.process_time()
            await receive()
            spent[name].append((time.process_time() - before) * 1000 / BODY_MIB)
    for name, figures in spent.items():
        kept = sorted(figures[1:])
        median = statistics.median(kept)
        print(f"{name}: {median:.2f} ms/MiB (from {kept[0]:.2f} to {kept[-1]:.2f})")
    await ours.close()
    await theirs.aclose()


def main(arguments: list[str]) -> None:
    """Start the sender, compare, end the sender."""
    rounds, chunk_bytes = [*map(int, arguments), *(7, 0)[len(arguments) :]]
    with socket.create_server(("127.0.0.1", 0)) as listener:
        context = multiprocessing.get_context("fork")
        sender = context.Process(target=send_replies, args=(listener, chunk_bytes), daemon=True)
        sender.start()
        try:
            uvloop.run(compare(listener.getsockname()[1], rounds))
        finally:
            sender.kill()
            sender.join()


if __name__ == "__main__":
    main(sys.argv[1:])
