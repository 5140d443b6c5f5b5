"""One connection to an engine: sends a request, receives into a lent buffer, one reply at a time.

`asyncio.BufferedProtocol`: the loop receives into one buffer that all connections of a client
share, since nothing of it is needed after `buffer_updated`. The reader hands the body on from
there. A sink without room stops the reading, so TCP holds the engine back. So does a reply that
comes as fast as it is read, after each burst and for one turn of the loop: others have work too.

While an exchange runs, its task waits in `exchange`; any end of it but a whole reply closes the
connection, which is also how an engine learns that nobody wants its reply any more. Between
exchanges a connection that ends or speaks is of no more use, and closes itself.

Must not know the pool, URLs, or what a reply says.

Spec: docs/architecture.md#engine
"""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Callable
from typing import Final, cast

from sessions.engine.failures import reason_of
from sessions.engine.reply_reader import Progress, ReplyReader
from sessions.errors.engine import EngineTimeoutError, EngineUnreachableError
from sessions.errors.unseen import LocalProtocolError

# A peer that vanished without a word is noticed after 60 s.
_KEEPALIVE_IDLE_S: Final = 30
_KEEPALIVE_INTERVAL_S: Final = 10
_KEEPALIVE_PROBES: Final = 3
# uvloop receives up to 32 buffers at once, 8 MiB, which takes 3 to 9 ms here; with this 0.4 to 1.2
# (measured).
BURST_BYTES: Final = 1 << 20


class EngineConnection(asyncio.BufferedProtocol):
    """See the module docstring.

    Attributes:
        is_reused: An exchange went well on it before.
    """

    def __init__(self, buffer: memoryview, on_end: Callable[[EngineConnection], None]) -> None:
        """Give it to `create_connection`.

        Args:
            buffer: To receive into; shared with other connections of this loop.
            on_end: Called once or twice when it ends, from inside the loop.
        """
        self._buffer = buffer
        self._on_end = on_end
        self._loop = asyncio.get_running_loop()
        self._closed: asyncio.Future[None] = self._loop.create_future()
        self._transport: asyncio.Transport | None = None
        self._reader: ReplyReader | None = None
        self._waiter: asyncio.Future[Progress] | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._failure: Exception | None = None
        self._is_open = False
        self._is_paused = False  # until the sink has room
        self._burst_bytes = 0
        self._moved_at = 0.0  # when the exchange last got on
        self._unsent_bytes = 0
        self.is_reused = False

    # --- the loop's calls

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """The transport is there."""
        self._transport = cast("asyncio.Transport", transport)
        self._is_open = True
        _tune(transport.get_extra_info("socket"))

    def get_buffer(self, sizehint: int) -> memoryview:
        """Where to receive into."""
        return self._buffer

    def buffer_updated(self, nbytes: int) -> None:
        """So many bytes were received."""
        if self._reader is None or self._failure is not None:
            self.abort()
            return
        self._moved_at = self._loop.time()
        try:
            progress = self._reader.receive(self._buffer[:nbytes])
        except Exception as error:  # noqa: BLE001 - the top of a callback: its exchange gets it
            self._fail(error)
            return
        self._show(progress)
        self._burst_bytes += nbytes
        if self._burst_bytes >= BURST_BYTES:
            self._rest(progress)

    def eof_received(self) -> None:
        """The engine sends no more; the transport closes itself after this."""
        self._is_open = False
        if self._reader is None:
            self._on_end(self)
            return
        try:
            progress = self._reader.end()
        except Exception as error:  # noqa: BLE001 - as above
            self._fail(error)
            return
        self._show(progress)

    def connection_lost(self, exc: Exception | None) -> None:
        """The transport is gone."""
        self._is_open = False
        if not self._closed.done():
            self._closed.set_result(None)
        self._on_end(self)
        if self._reader is not None:
            error = EngineUnreachableError(f"the engine broke off: {reason_of(exc)}")
            error.__cause__ = exc
            self._fail(error)

    # --- for the client

    @property
    def is_usable(self) -> bool:
        """Whether an exchange may begin."""
        return self._is_open and self._reader is None

    async def exchange(self, message: list[bytes], reader: ReplyReader, stall_s: float) -> bool:
        """Send a request and read the reply into the reader.

        Args:
            message: The request's bytes.
            reader: A new one.
            stall_s: How long the engine may stand still.

        Returns:
            Whether the connection can be used again; else it is closed.

        Raises:
            EngineUnreachableError: The engine broke off. After this and every other error, and
                after a cancel, the connection is closed.
            EngineTimeoutError: The engine stood still.
            EngineReplyUnusableError: The reply's coding cannot be undone.
            Exception: What the sink raised.
        """
        transport = self._transport
        if not self.is_usable or transport is None:
            raise LocalProtocolError("an exchange on a connection that is not free")
        self._reader = reader
        is_reusable = False
        self._waiter = self._loop.create_future()
        self._moved_at = self._loop.time()
        self._timer = self._loop.call_later(stall_s, self._look, stall_s)
        try:
            transport.writelines(message)
            self._unsent_bytes = transport.get_write_buffer_size()
            await self._read(transport, reader, self._waiter)
            is_sent = transport.get_write_buffer_size() == 0
            is_reusable = reader.allows_reuse and is_sent and self._is_open
        finally:
            self._timer.cancel()
            self._reader = self._waiter = None
            if is_reusable:
                self.is_reused = True
            else:
                self.abort()
        return is_reusable

    def abort(self) -> None:
        """Close at once; nothing that matters is ever unsent."""
        self._is_open = False
        if self._transport is not None:
            self._transport.abort()

    async def wait_closed(self) -> None:
        """Wait until the transport is gone."""
        await asyncio.shield(self._closed)

    # --- inside

    async def _read(
        self, transport: asyncio.Transport, reader: ReplyReader, waiter: asyncio.Future[Progress]
    ) -> None:
        progress = await waiter
        while progress is Progress.ROOM:
            if reader.sink is not None:
                await reader.sink.wait_room()
            progress = reader.go_on()
            if progress is Progress.MORE:
                if self._failure is not None:
                    raise self._failure
                self._waiter = self._loop.create_future()
                self._moved_at = self._loop.time()
                self._is_paused = False
                transport.resume_reading()
                progress = await self._waiter
        if self._is_paused and self._is_open:  # whole with what was kept; the next one reads on
            self._is_paused = False
            transport.resume_reading()

    def _show(self, progress: Progress) -> None:
        """Wake the exchange unless the reader just wants more bytes."""
        if progress is Progress.MORE:
            return
        if progress is Progress.ROOM and not self._is_paused:
            self._is_paused = True
            if self._is_open and self._transport is not None:
                self._transport.pause_reading()
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(progress)

    def _rest(self, progress: Progress) -> None:
        """A burst is over: receive on when the loop has turned."""
        self._burst_bytes = 0
        if progress is Progress.MORE and self._is_open and self._transport is not None:
            self._transport.pause_reading()
            self._loop.call_soon(self._end_rest)

    def _end_rest(self) -> None:
        if self._is_open and not self._is_paused and self._transport is not None:
            self._transport.resume_reading()

    def _fail(self, error: Exception) -> None:
        """End the exchange; the first error counts."""
        if self._failure is None:
            self._failure = error
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_exception(self._failure)

    def _look(self, stall_s: float) -> None:
        """Now and then: does the exchange stand still? So no timer is moved for each byte."""
        now = self._loop.time()
        unsent = self._transport.get_write_buffer_size() if self._transport is not None else 0
        if self._is_paused or unsent < self._unsent_bytes:
            self._moved_at = now
        self._unsent_bytes = unsent
        left_s = self._moved_at + stall_s - now
        if left_s > 0:
            self._timer = self._loop.call_later(left_s, self._look, stall_s)
        else:
            self._fail(EngineTimeoutError("the engine did not answer in time"))


def _tune(found: socket.socket | None) -> None:
    """Find out that a silent peer is gone; the loops have set TCP_NODELAY themselves."""
    if found is None or found.family not in {socket.AF_INET, socket.AF_INET6}:
        return
    found.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    found.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPIDLE, _KEEPALIVE_IDLE_S)
    found.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPINTVL, _KEEPALIVE_INTERVAL_S)
    found.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPCNT, _KEEPALIVE_PROBES)
