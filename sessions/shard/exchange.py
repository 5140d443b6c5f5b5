"""The shard's side of a lent connection: exactly one request at a time, served as uvicorn does.

`lend` brings the head and what came with it, the transport the rest of the body, uvicorn's cycle
runs the application and writes the reply, and when the exchange is over (the last body byte read,
the reply complete, the write buffer empty: lending rule 10) the connection goes back to its lender
and this object waits, parked, for the next loan. Bytes behind the request are kept for the next
exchange. After an early reply the rest of the body is discarded for as long as it comes (rule 11).

It decides nothing about owners and never begins to read a head of its own.

Spec: docs/lending.md#exchanges
"""

from __future__ import annotations

import asyncio
import enum
from collections.abc import Callable
from functools import partial
from typing import Final, Protocol, cast

from uvicorn.protocols.http.flow_control import HIGH_WATER_LIMIT, FlowControl
from uvicorn.protocols.utils import get_local_addr, get_remote_addr

from sessions.errors.client_visible import ClientVisibleError
from sessions.errors.protocol import BadBodyError, BadHeadError, BodyTooLargeError, BodyTooSlowError
from sessions.shard.cycle import Cycle, Service, scope_of
from sessions.shard.lent_transport import LentTransport, SpentTransport
from sessions.shard.refusal import Refusal
from sessions.shard.request_body import ChunkDecoder, RequestBody
from sessions.wire.head import Framing, Head
from sessions.wire.replies import render_error

LEFTOVER_LIMIT_BYTES: Final = 65536  # then reading pauses: the next head is the lender's
_SPENT: Final = SpentTransport()


class LoanState(enum.Enum):
    """Where a shard's copy of a connection stands."""

    PARKED = enum.auto()
    LENT = enum.auto()
    GONE = enum.auto()


class Lender(Protocol):
    """Who lent the connection and takes it back."""

    body_limit_bytes: int

    def wrap(self, transport: asyncio.Transport, exchange: Exchange) -> LentTransport:
        """The transport that uvicorn shall see."""

    def on_begun(self, exchange: Exchange) -> None:
        """A loan began and its request or reply is not at its end."""

    def take_back(self, exchange: Exchange, leftover: bytes, *, kept: bool) -> None:
        """The exchange is over; without `kept` the connection is, too."""

    def on_lost(self, exchange: Exchange) -> None:
        """The copy of the connection is gone, lent or parked."""


# Naming an enum member costs 70 ns on Python 3.11; an exchange asks for these ten times.
_PARKED: Final = LoanState.PARKED
_LENT: Final = LoanState.LENT
_CHUNKED: Final = Framing.CHUNKED
_NO_BODY: Final = RequestBody(content_length=0, chunked=False)


class Exchange(asyncio.Protocol):
    """Serves the loans of one connection; see the module docstring.

    Attributes:
        slot: The connection's slot number.
        generation: Of the current or last loan.
        loan: Where the copy stands.
        progress_at: Loop time of the last body byte; the sweep compares it with the time-out.
        is_watched: Whether the sweep saw this loan before.
        flow: What the application's side knows of the transport.
        cycle: The current or last request and its reply.
    """

    flow: FlowControl
    cycle: Cycle
    _lent: LentTransport

    def __init__(self, service: Service, lender: Lender) -> None:
        self.slot = -1
        self.generation = 0
        self.loan = _PARKED
        self.progress_at = 0.0
        self.is_watched = False
        self._service = service
        self._lender = lender
        self._loop = asyncio.get_running_loop()
        self._first_loan: Callable[[], None] | None = None
        self._body = _NO_BODY
        self._chunks: ChunkDecoder | None = None
        self._is_made = False
        self._has_cycle = False
        self._is_head_only = False
        self._is_reply_whole = False
        self._has_low_limit = False
        self._is_buffer_full = False
        self._keeps_with_body = False  # kept if the body comes, which a 100 was expected for
        self._leftover = b""

    # --- loans

    def lend(
        self, generation: int, head: Head | None, data: bytes, *, is_last: bool = False
    ) -> None:
        """Begin an exchange.

        Args:
            generation: Of this loan.
            head: Of the request, or None if its sender and this process read it apart.
            data: The head's bytes and what was read behind them.
            is_last: The reply shall say that it is the connection's last.
        """
        self.loan = _LENT
        self.generation = generation
        self.progress_at = self._loop.time()
        self.is_watched = False
        self._is_reply_whole = self._keeps_with_body = False
        self._leftover = b""
        self._lent.begin_loan(generation)
        self._service.connections.add(self)
        if head is None:
            self._fail(BadHeadError("the request head is not one request head"))
            return
        self._begin(head, data)
        if is_last:
            self.cycle.keep_alive = self._keeps_with_body = False
        if len(data) > head.size:
            self.data_received(data[head.size :])
        if self.loan is _LENT:
            self._lent.is_body_missing = not self._body.is_whole
            self.flow.resume_reading()
            self._lender.on_begun(self)

    def announce(
        self, generation: int, head: Head | None, data: bytes, *, is_last: bool = False
    ) -> None:
        """Say which loan begins when the transport is there; see `lend`."""
        self._first_loan = partial(self.lend, generation, head, data, is_last=is_last)

    def hand_over(self) -> None:
        """The loan is closed, the connection is not: its own process reads on."""
        self._lent.hand_over()

    def release(self) -> None:
        """The lender's word that the connection is gone: drop the copy without a word back."""
        self.loan = LoanState.GONE
        if self._is_made:
            self._lent.abort()

    def shutdown(self) -> None:
        """Hear from uvicorn that the server stops."""
        if self._is_reply_whole:
            self._lent.close()
        else:
            self.cycle.keep_alive = False

    @property
    def transport(self) -> LentTransport:
        """What the reply is written to."""
        return self._lent

    @property
    def is_body_wanted(self) -> bool:
        """Whether the client, not the application, holds the body up."""
        if self._body.is_whole or self.flow.read_paused:
            return False
        return not self.cycle.waiting_for_100_continue  # the client may wait for it, too

    def watch_client(self) -> None:
        """The exchange takes long: notice from now on when the client goes away."""
        self.is_watched = True
        self._lent.read_now()

    def fail_slow_body(self, limit_s: float) -> None:
        """The body stood still for too long."""
        self._fail(BodyTooSlowError(f"no body byte came for {limit_s:g} s"))

    def give_up(self, error: ClientVisibleError) -> bool:
        """The process ends: answer with the error, or cut a reply that has begun.

        Returns:
            Whether the exchange was neither at its end nor ending.
        """
        if self.loan is not _LENT or self._lent.is_closing():
            return False
        if self._is_reply_whole:
            self._lent.close()
            return False
        self._fail(error)
        return True

    # --- what the loop calls

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Take the connection's transport."""
        # uvloop's transport does not inherit from asyncio's.
        self._lent = self._lender.wrap(cast("asyncio.Transport", transport), self)
        self._lent.on_interim = self._keep_after_all
        self._lent.on_long_write = self._let_loop_turn
        self.flow = FlowControl(self._lent)
        self._server = get_local_addr(self._lent)
        self._client = get_remote_addr(self._lent)
        self._is_made = True
        if self.loan is LoanState.GONE:
            self._lent.abort()  # released before it was adopted
        elif self._first_loan is not None:
            first, self._first_loan = self._first_loan, None
            self._loop.call_soon(self._lent.on_started)
            first()

    def data_received(self, data: bytes) -> None:
        """Take body bytes, and keep what comes behind the body."""
        if self._body.is_whole or self.loan is not _LENT:
            self._keep(data)
            return
        self.progress_at = self._loop.time()
        try:
            taken = self._take(data)
        except (BadBodyError, BodyTooLargeError) as error:
            self._fail(error)
            return
        if self._body.is_whole:
            self._lent.is_body_missing = False
            self._keep_after_all()
            if taken < len(data):
                self._keep(data[taken:])
            self._give_back_if_over()

    def eof_received(self) -> None:
        """The client sends no more; the transport closes."""

    def pause_writing(self) -> None:
        """The write buffer is full."""
        self._is_buffer_full = True
        self.flow.pause_writing()

    def resume_writing(self) -> None:
        """The write buffer ran empty."""
        self._is_buffer_full = False
        self.flow.resume_writing()
        self._give_back_if_over()
        self._lent.on_flushed()

    def connection_lost(self, exc: Exception | None) -> None:
        """The client is gone, or the loan was closed."""
        self._service.connections.discard(self)
        self._tell_gone(is_gone=not self._is_reply_whole)
        self.flow.resume_writing()
        if exc is None:
            self._lent.close()
        was_lent = self.loan is _LENT
        self.loan = LoanState.GONE
        self._lender.on_lost(self)
        if was_lent:
            self._lender.take_back(self, b"", kept=False)

    # --- what the reply calls

    def on_response_complete(self) -> None:
        """The reply is written."""
        self._service.state.total_requests += 1
        self._is_reply_whole = True
        self.cycle.transport = _SPENT
        if self._lent.is_closing():
            return
        if not self._body.is_whole:
            self.progress_at = self._loop.time()
            self.flow.resume_reading()
        self._give_back_if_over()

    # --- inside

    def _begin(self, head: Head, data: bytes) -> None:
        """Start the application, as uvicorn does when it has read the same head."""
        service = self._service
        is_chunked = head.framing is _CHUNKED
        self._body = RequestBody(content_length=head.content_length, chunked=is_chunked)
        self._chunks = ChunkDecoder(data[: head.size]) if is_chunked else None
        self._is_head_only = head.method == b"HEAD"
        scope = scope_of(service, head, self._server, self._client)
        cycle = Cycle(
            service, head, scope, self._lent, self.flow, on_response=self.on_response_complete
        )
        self.cycle, self._has_cycle = cycle, True
        if self._body.is_whole:
            cycle.more_body = False
            cycle.message_event.set()
        elif cycle.waiting_for_100_continue:
            # The client may never send it: a final reply before a 100 ends the connection, and
            # says so (lending rule 11).
            self._keeps_with_body, cycle.keep_alive = cycle.keep_alive, False
        limit_bytes = self._lender.body_limit_bytes
        is_refused = head.content_length > limit_bytes
        app = Refusal(_too_large(limit_bytes)) if is_refused else service.app
        tasks = service.state.tasks
        tasks.add(self._loop.create_task(cycle.run(app, tasks)))

    def _take(self, data: bytes) -> int:
        """Give body bytes to the application; how many of these were some.

        Raises:
            BadBodyError: The framing is broken.
            BodyTooLargeError: More is announced than is allowed, and no reply was given yet.
        """
        body, cycle = self._body, self.cycle
        taken = body.feed(data)
        content = data if taken == len(data) else data[:taken]
        if self._chunks is not None:
            limit_bytes = self._lender.body_limit_bytes  # a length over it is refused with the head
            if body.size > limit_bytes and not self._is_reply_whole:
                raise _too_large(limit_bytes)
            content = self._chunks.feed(content)
        if not cycle.response_complete:
            cycle.body += content
            if len(cycle.body) > HIGH_WATER_LIMIT:
                self.flow.pause_reading()
            cycle.more_body = not body.is_whole
            cycle.message_event.set()
        if body.is_whole and self._chunks is not None and not self._chunks.is_whole:
            # llhttp sees no end where the scanner does: trust neither.
            raise BadBodyError("the chunked body does not end where its chunks do")
        return taken

    def _let_loop_turn(self) -> None:
        """Hold the application's next write until others had their turn."""
        self.flow.pause_writing()
        self._loop.call_soon(self._end_turn)

    def _end_turn(self) -> None:
        if not self._is_buffer_full:
            self.flow.resume_writing()

    def _keep(self, data: bytes) -> None:
        self._leftover += data
        if len(self._leftover) > LEFTOVER_LIMIT_BYTES:
            self._lent.stop_input()

    def _keep_after_all(self) -> None:
        """The body came or will come, so the connection can go on unless the reply says no."""
        if self._keeps_with_body and not self._lent.has_replied:
            self._keeps_with_body, self.cycle.keep_alive = False, True

    def _give_back_if_over(self) -> None:
        if not (self._is_reply_whole and self._body.is_whole and self.loan is _LENT):
            return
        transport = self._lent
        if transport.is_closing():
            return
        transport.release_head()
        if transport.get_write_buffer_size():
            if not self._has_low_limit:
                self._has_low_limit = True
                transport.set_write_buffer_limits(0)
            return
        if self._has_low_limit:
            self._has_low_limit = False
            transport.set_write_buffer_limits()
        leftover, self._leftover = self._leftover, b""
        if not leftover:
            transport.mark_complete()
        self.loan = _PARKED
        self._service.connections.discard(self)
        transport.park(self.flow)
        self._lender.take_back(self, leftover, kept=True)

    def _fail(self, error: ClientVisibleError) -> None:
        """End the request: with a reply if none began, and the connection with it."""
        self._lent.drop_head()
        if not self._lent.has_replied:
            path = self.cycle.scope["raw_path"] if self._has_cycle else b""
            reply = render_error(error, close=True, head_only=self._is_head_only, path=path)
            self._lent.write(reply)
        self._tell_gone(is_gone=True)
        self._lent.close()

    def _tell_gone(self, *, is_gone: bool) -> None:
        """Wake an application that waits for its client."""
        if self._has_cycle:
            self.cycle.disconnected |= is_gone
            self.cycle.message_event.set()


def _too_large(limit_bytes: int) -> BodyTooLargeError:
    return BodyTooLargeError(f"the request body is larger than {limit_bytes} bytes")
