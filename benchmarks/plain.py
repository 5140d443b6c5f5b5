"""A plain uvicorn application that streams bytes from memory: what a read of records is held up to.

`/raw?bytes=N` sends pieces in a bare loop, the least that ASGI can do, and starves all other
requests; `/usual?bytes=N` is Starlette's streaming response, as such a reply is usually written.

Spec: docs/benchmark.md#records
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from typing import Final
from urllib.parse import parse_qs

from starlette.responses import StreamingResponse
from starlette.types import ASGIApp, Receive, Scope, Send

PIECE_BYTES: Final = 65536  # of Starlette's file replies
_BLOCK_BYTES: Final = 1 << 27  # much more than any cache holds


def app() -> ASGIApp:
    """The application; it holds 128 MiB."""
    block = memoryview(bytes(range(256)) * (_BLOCK_BYTES // 256))

    async def plain(scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            return
        size = int(parse_qs(scope["query_string"].decode())["bytes"][0])
        headers = {"content-length": str(size)}
        if scope["path"] == "/usual":
            response = StreamingResponse(_usual(block, size), headers=headers)
            await response(scope, receive, send)
            return
        raw_headers = [(b"content-length", str(size).encode())]
        await send({"type": "http.response.start", "status": 200, "headers": raw_headers})
        for piece in _pieces(block, size):
            await send({"type": "http.response.body", "body": piece, "more_body": True})
        await send({"type": "http.response.body", "body": b""})

    return plain


async def _usual(block: memoryview, size_bytes: int) -> AsyncIterator[memoryview]:
    for piece in _pieces(block, size_bytes):
        yield piece


def _pieces(block: memoryview, size_bytes: int) -> Iterator[memoryview]:
    for start in range(0, size_bytes, PIECE_BYTES):
        place = start % len(block)
        yield block[place : place + min(PIECE_BYTES, size_bytes - start)]
