"""A long reply as a Starlette response: texts and stored blobs, sent piece by piece.

The length is known, the whole is never in memory: a piece at a time is read from the store, at
once where no disk is waited for and else in a thread. All long replies share a turnstile, so other
requests of the shard wait for one piece, not for one of each. Blobs are pinned until the last byte
was handed over, the client has gone or the response was cancelled.

`begin` reads the first piece, so that a store that fails there is an error with a status. One that
fails later cuts the connection, since the status was sent.

Must not know sessions or JSON.

Spec: docs/replay.md#read
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Iterable, Iterator, Sequence
from contextlib import ExitStack, aclosing
from dataclasses import dataclass
from functools import partial
from typing import Final, TypeAlias

from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from sessions.core.records.turnstile import Turnstile
from sessions.replay.blobs import Readable, ReplayBlob
from sessions.replay.splice import Part, size_of

# Measured through a quiet shard: 64 KiB cost 0.45 ms of CPU per MiB, 128 KiB 0.38, 256 KiB 0.34.
# Beside eight downloads small requests wait 26 ms at the 99th percentile, with 128 KiB 18.
PIECE_BYTES: Final = 262144


@dataclass(frozen=True, slots=True, kw_only=True)
class BlobSlice:
    """Bytes [start, stop) of a blob, at most a piece."""

    blob: Readable
    start: int
    stop: int


Piece: TypeAlias = memoryview | BlobSlice


def pieces_of(parts: Iterable[Part], start: int, stop: int) -> Iterator[Piece]:
    """Cut bytes [start, stop) of a text in parts into pieces, each within one part.

    Args:
        parts: The text.
        start: Of the first byte.
        stop: Behind the last one.

    Yields:
        Pieces in order, none empty, none longer than `PIECE_BYTES`.
    """
    at = 0
    for part in parts:
        size = size_of(part)
        for first in range(max(0, start - at), min(size, stop - at), PIECE_BYTES):
            last = min(first + PIECE_BYTES, size, stop - at)
            if isinstance(part, bytes | memoryview):
                yield memoryview(part)[first:last]
            else:
                yield BlobSlice(blob=part, start=first, stop=last)
        at += size


def pin(blobs: Iterable[ReplayBlob]) -> ExitStack:
    """Pin blobs; closing what is returned unpins them."""
    pins = ExitStack()
    for blob in blobs:
        blob.pin()
        pins.callback(blob.unpin)
    return pins


class RecordStream(Response):
    """See the module docstring. Begun, it must be called: that ends the pins."""

    def __init__(
        self,
        status: int,
        headers: Sequence[tuple[bytes, bytes]],
        pieces: Iterable[Piece],
        size_bytes: int,
        pins: ExitStack,
        *,
        turnstile: Turnstile,
    ) -> None:
        """Make a response that has not begun.

        Args:
            status: HTTP status.
            headers: Without the length, names lower-case.
            pieces: The body.
            size_bytes: Its length.
            pins: Of the body's blobs; closed in the end.
            turnstile: Of all long replies of the process.
        """
        super().__init__(status_code=status)
        length = (b"content-length", b"%d" % size_bytes)
        self.raw_headers = [*headers, length]
        self._left_bytes = size_bytes
        self._pins = pins
        self._turnstile = turnstile
        self._reading: asyncio.Future[bytes | memoryview] | None = None
        self._bodies = self._joined(pieces)
        self._first: bytes | memoryview = b""

    async def begin(self) -> None:
        """Read the first piece.

        Raises:
            ReplayStoreError: The disk failed; nothing is pinned any more.
        """
        try:
            self._first = await anext(self._bodies)
        except BaseException:
            self._unpin()
            raise

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Send the reply; to HEAD its headers, for which it need not have begun.

        Raises:
            ReplayStoreError: The disk failed after the first piece.
        """
        head = {"status": self.status_code, "headers": self.raw_headers}
        try:
            await send({"type": "http.response.start", **head})
            if scope["method"] == "HEAD":
                await send({"type": "http.response.body", "body": b""})
                return
            async with aclosing(self._bodies) as bodies:
                await self._send(self._first, send)
                if self._left_bytes:
                    await self._send_rest(bodies, receive, send)
        finally:
            self._unpin()

    async def _send_rest(
        self, bodies: AsyncGenerator[bytes | memoryview, None], receive: Receive, send: Send
    ) -> None:
        gone = asyncio.ensure_future(_wait_gone(receive))
        try:
            async for body in bodies:
                # Nothing else would end it: a server takes what it is given for a client that left.
                await self._turnstile.wait_turn()
                if gone.done():
                    return
                await self._send(body, send)
        finally:
            gone.cancel()
            await asyncio.gather(gone, return_exceptions=True)

    async def _send(self, body: bytes | memoryview, send: Send) -> None:
        self._left_bytes -= len(body)
        is_more = self._left_bytes > 0
        await send({"type": "http.response.body", "body": body, "more_body": is_more})

    async def _joined(self, pieces: Iterable[Piece]) -> AsyncGenerator[bytes | memoryview, None]:
        """The bytes to send: small pieces joined, so that each write is worth its cost.

        One piece is read ahead: a first blob that cannot be read shows before a text is sent.
        """
        gathered: list[bytes | memoryview] = []
        gathered_bytes = 0
        for piece in pieces:
            found = await self._read(piece) if isinstance(piece, BlobSlice) else piece
            if gathered_bytes + len(found) > PIECE_BYTES:
                yield b"".join(gathered) if len(gathered) > 1 else gathered[0]
                gathered, gathered_bytes = [], 0
            gathered.append(found)
            gathered_bytes += len(found)
        yield b"".join(gathered) if len(gathered) > 1 else gathered[0]

    async def _read(self, piece: BlobSlice) -> bytes | memoryview:
        found = piece.blob.read_nowait(piece.start, piece.stop)
        if found is None:
            work = partial(piece.blob.read, piece.start, piece.stop)
            self._reading = asyncio.ensure_future(asyncio.to_thread(work))
            # A cancel cannot stop the thread: it goes on to read a pinned blob.
            found = await asyncio.shield(self._reading)
        return found

    def _unpin(self) -> None:
        if self._reading is None or self._reading.done():
            self._pins.close()
        else:
            self._reading.add_done_callback(self._unpin_after)

    def _unpin_after(self, reading: asyncio.Future[bytes | memoryview]) -> None:
        if not reading.cancelled():
            reading.exception()  # nobody waits for it any more
        self._pins.close()


async def _wait_gone(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass
