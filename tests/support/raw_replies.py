"""Replies of an engine as raw bytes, in every framing and coding, and sinks to take them.

Spec: docs/architecture.md#tests
"""

from __future__ import annotations

import asyncio
import gzip
import zlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Final

import zstandard

from sessions.engine.engine import Headers

# About 2 KiB, so that every byte of a reply can be a case of its own.
BODY: Final = b'{"text": "' + b"".join(b"%04d " % n for n in range(360)) + b'"}'


def length_reply(body: bytes = BODY, *headers: bytes, status: bytes = b"200 OK") -> bytes:
    """With Content-Length."""
    lines = [b"HTTP/1.1 " + status, *headers, b"content-length: %d" % len(body), b"", body]
    return b"\r\n".join(lines)


def chunked_reply(body: bytes = BODY, *headers: bytes, chunk_bytes: int = 300) -> bytes:
    """In chunks, with an extension and a trailer."""
    parts = [body[i : i + chunk_bytes] for i in range(0, len(body), chunk_bytes)]
    chunks = b"".join(b"%x;n=%d\r\n%b\r\n" % (len(p), n, p) for n, p in enumerate(parts))
    lines = [b"HTTP/1.1 200 OK", *headers, b"transfer-encoding: chunked", b"", chunks]
    return b"\r\n".join(lines) + b"0\r\nx-trailer: 1\r\n\r\n"


def close_reply(body: bytes = BODY, *headers: bytes) -> bytes:
    """Until the connection ends."""
    return b"\r\n".join([b"HTTP/1.1 200 OK", *headers, b"", body])


# Each decodes to BODY; those of the second table end with the connection.
REPLIES: Final[Mapping[str, bytes]] = MappingProxyType(
    {
        "length": length_reply(),
        "chunked": chunked_reply(),
        "interim": b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 102 x\r\na: b\r\n\r\n" + length_reply(),
        "gzip": length_reply(gzip.compress(BODY), b"content-encoding: gzip"),
        "deflate": chunked_reply(zlib.compress(BODY), b"content-encoding: deflate"),
        "zstd": length_reply(zstandard.compress(BODY), b"content-encoding: zstd"),
        "zstd in small chunks": chunked_reply(
            zstandard.compress(BODY), b"content-encoding: zstd", chunk_bytes=7
        ),
    }
)
CLOSE_REPLIES: Final[Mapping[str, bytes]] = MappingProxyType(
    {
        "close": close_reply(),
        "close, gzip": close_reply(gzip.compress(BODY), b"content-encoding: gzip"),
        "close, zstd": close_reply(zstandard.compress(BODY), b"content-encoding: zstd"),
    }
)


@dataclass
class KeepingSink:
    """Keeps what it is fed.

    Attributes:
        has_room: What `feed` says, by how many pieces came before.
        data: All that it was fed.
        piece_count: In how many pieces.
        waits: How often somebody waited for room.
        room: Waits wait for it; open unless a test clears it.
        error: Raised by `feed`.
        wait_error: Raised by `wait_room`.
    """

    has_room: Callable[[int], bool] = lambda _: True
    data: bytearray = field(default_factory=bytearray)
    piece_count: int = 0
    waits: int = 0
    room: asyncio.Event = field(default_factory=asyncio.Event)
    error: Exception | None = None
    wait_error: Exception | None = None
    _may_feed: bool = True

    def __post_init__(self) -> None:
        """Begin with room."""
        self.room.set()

    def feed(self, piece: memoryview) -> bool:
        """Take a piece; fails the test if nobody waited for room since it said no."""
        assert self._may_feed, "fed without room"
        assert piece, "fed nothing"
        if self.error is not None:
            raise self.error
        self.data += piece
        self.piece_count += 1
        self._may_feed = self.has_room(self.piece_count - 1)
        return self._may_feed

    async def wait_room(self) -> None:
        """Wait for the event."""
        self.waits += 1
        await self.room.wait()
        if self.wait_error is not None:
            raise self.wait_error
        self._may_feed = True

    def make_room(self) -> None:
        """What `wait_room` does, without waiting."""
        self.waits += 1
        self._may_feed = True

    def open(self, status: int, headers: Headers) -> KeepingSink:
        """An opener that gives this sink."""
        assert status >= 200
        return self
