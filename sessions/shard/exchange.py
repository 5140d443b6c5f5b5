"""The shard's side of a lent connection: uvicorn's protocol for exactly one request at a time.

`lend` feeds the head and what came with it, the transport feeds the rest of the body, uvicorn runs
the application and writes the reply, and when the exchange is over (the last body byte read, the
reply complete, the write buffer empty: lending rule 10) the connection goes back to its lender
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
from typing import Any, Final, Protocol, cast

from uvicorn import Config
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol
from uvicorn.server import ServerState

from sessions.errors import (
    BadBodyError,
    BodyTooLargeError,
    BodyTooSlowError,
    ClientVisibleError,
    LocalProtocolError,
)
from sessions.shard.lent_transport import LentTransport, SpentTransport
from sessions.shard.refusal import Refusal
from sessions.shard.request_body import RequestBody
from sessions.wire.replies import render_error

LEFTOVER_LIMIT_BYTES: Final = 65536  # then reading pauses: the next head is the lender's
_SPENT: Final = SpentTransport()


class _UnknownLength(int):
    """What uvicorn takes for the bytes that a reply may still have: any number, and none."""

    def __lt__(self, other: object) -> bool:
        return False

    def __ne__(self, other: object) -> bool:
        return False

    def __sub__(self, other: int) -> _UnknownLength:
        return self

    __hash__ = int.__hash__


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


class Exchange(HttpToolsProtocol):
    """Serves the loans of one connection; see the module docstring.

    Attributes:
        slot: The connection's slot number.
        generation: Of the current or last loan.
        loan: Where the copy stands.
        progress_at: Loop time of the last body byte; the sweep compares it with the time-out.
        is_watched: Whether the sweep saw this loan before.
    """

    def __init__(
        self, config: Config, server_state: ServerState, app_state: dict[str, Any], lender: Lender
    ) -> None:
        super().__init__(config, server_state, app_state)
        self.slot = -1
        self.generation = 0
        self.loan = _PARKED
        self.progress_at = 0.0
        self.is_watched = False
        self._first_loan: Callable[[], None] | None = None
        self._lender = lender
        self._lent: LentTransport
        self._body = RequestBody(content_length=0, chunked=False)
        self._is_reply_whole = False
        self._is_request_begun = False
        self._is_request_parsed = False
        self._has_low_limit = False
        self._is_buffer_full = False
        self._keeps_with_body = False  # kept if the body comes, which a 100 was expected for
        self._leftover = b""

    # --- loans

    def lend(self, generation: int, head_bytes: int, data: bytes, *, is_last: bool = False) -> None:
        """Begin an exchange.

        Args:
            generation: Of this loan.
            head_bytes: How many bytes of `data` are the request head.
            data: The head and what was read behind it.
            is_last: The reply shall say that it is the connection's last.
        """
        self.loan = _LENT
        self.generation = generation
        self.progress_at = self.loop.time()
        self.is_watched = False
        self._is_reply_whole = self._is_request_begun = self._is_request_parsed = False
        self._keeps_with_body = False
        self._leftover = b""
        self._lent.begin_loan(generation)
        self.connections.add(self)
        super().data_received(data[:head_bytes])
        if is_last and self.cycle is not None:
            self.cycle.keep_alive = self._keeps_with_body = False
        if len(data) > head_bytes:
            self.data_received(data[head_bytes:])
        if self.loan is _LENT:
            self._lent.is_body_missing = not self._body.is_whole
            self.flow.resume_reading()
            self._lender.on_begun(self)

    def announce(
        self, generation: int, head_bytes: int, data: bytes, *, is_last: bool = False
    ) -> None:
        """Say which loan begins when the transport is there; see `lend`."""
        self._first_loan = partial(self.lend, generation, head_bytes, data, is_last=is_last)

    def hand_over(self) -> None:
        """The loan is closed, the connection is not: its own process reads on."""
        self._lent.hand_over()

    def release(self) -> None:
        """The lender's word that the connection is gone: drop the copy without a word back."""
        self.loan = LoanState.GONE
        if self.transport is not None:
            self.transport.abort()

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
        if self.loan is not _LENT or self.transport.is_closing():
            return False
        if self._is_reply_whole:
            self.transport.close()
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
        super().connection_made(self._lent)
        self.connections.discard(self)
        if self.loan is LoanState.GONE:
            self.transport.abort()  # released before it was adopted
        elif self._first_loan is not None:
            first, self._first_loan = self._first_loan, None
            self.loop.call_soon(self._lent.on_started)
            first()

    def data_received(self, data: bytes) -> None:
        """Take body bytes, and keep what comes behind the body."""
        if self._body.is_whole or self.loan is not _LENT:
            self._keep(data)
            return
        self.progress_at = self.loop.time()
        try:
            taken = self._body.feed(data)
        except BadBodyError as error:
            self._fail(error)
            return
        limit_bytes = self._lender.body_limit_bytes  # a length over it is refused with the head
        if self._body.is_chunked and self._body.size > limit_bytes and not self._is_reply_whole:
            self._fail(_too_large(limit_bytes))
            return
        super().data_received(data if taken == len(data) else data[:taken])
        if self._body.is_whole:
            self._lent.is_body_missing = False
            self._keep_after_all()
            if not self._is_request_parsed:
                # llhttp sees no end where the scanner does: trust neither.
                self._fail(BadBodyError("the chunked body does not end where its chunks do"))
                return
            if taken < len(data):
                self._keep(data[taken:])
            self._give_back_if_over()

    def pause_writing(self) -> None:
        """The write buffer is full."""
        self._is_buffer_full = True
        super().pause_writing()

    def resume_writing(self) -> None:
        """The write buffer ran empty."""
        self._is_buffer_full = False
        super().resume_writing()
        self._give_back_if_over()
        self._lent.on_flushed()

    def connection_lost(self, exc: Exception | None) -> None:
        """The client is gone, or the loan was closed."""
        super().connection_lost(exc)
        was_lent = self.loan is _LENT
        self.loan = LoanState.GONE
        self._lender.on_lost(self)
        if was_lent:
            self._lender.take_back(self, b"", kept=False)

    # --- what uvicorn's parser and reply call

    def on_message_begin(self) -> None:
        """Begin the one request of this loan.

        Raises:
            LocalProtocolError: A second one begins: llhttp ended the body before the scanner did.
                The parser turns it into its own error, and the bytes are executed by nobody.
        """
        if self._is_request_begun:
            raise LocalProtocolError("a second request in one loan")
        self._is_request_begun = True
        super().on_message_begin()

    def on_message_complete(self) -> None:
        """Note where llhttp sees the end."""
        self._is_request_parsed = True
        super().on_message_complete()

    def on_headers_complete(self) -> None:
        """Note the body's framing; refuse a body that is announced as too large."""
        content_length, chunked = 0, False
        for name, value in self.headers:
            if name == b"content-length":
                content_length = int(value)
            elif name == b"transfer-encoding":
                chunked = True
        self._body = RequestBody(content_length=content_length, chunked=chunked)
        is_http10 = self.parser.get_http_version() == "1.0"
        if is_http10:
            self.expect_100_continue = False  # RFC 9110 section 10.1.1
        limit_bytes = self._lender.body_limit_bytes
        app = self.app
        if content_length > limit_bytes:
            self.app = Refusal(_too_large(limit_bytes))
        try:
            super().on_headers_complete()
        finally:
            self.app = app
        if is_http10:
            # No chunks (RFC 9112 section 6.1): what states no length ends with the connection.
            self.cycle.chunked_encoding = False
            self.cycle.expected_content_length = _UnknownLength()
        if self.expect_100_continue and not self._body.is_whole:
            # The client may never send it: a final reply before a 100 ends the connection, and
            # says so (lending rule 11).
            self._keeps_with_body, self.cycle.keep_alive = self.cycle.keep_alive, False
        self.headers = []  # trailers come by the same callback and are no headers of the request

    def send_400_response(self, msg: str) -> None:
        """Override uvicorn's plain text: llhttp refused the body."""
        self._fail(BadBodyError(f"the request body is malformed: {msg}"))

    def on_response_complete(self) -> None:
        """The reply is written; uvicorn's keep-alive timer stays unarmed (rule 23)."""
        self.server_state.total_requests += 1
        self._is_reply_whole = True
        self.cycle.transport = _SPENT
        if self.transport.is_closing():
            return
        if not self._body.is_whole:
            self.progress_at = self.loop.time()
            self.flow.resume_reading()
        self._give_back_if_over()

    # --- inside

    def _let_loop_turn(self) -> None:
        """Hold the application's next write until others had their turn."""
        self.flow.pause_writing()
        self.loop.call_soon(self._end_turn)

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
        self.connections.discard(self)
        transport.park(self.flow)
        self._lender.take_back(self, leftover, kept=True)

    def _fail(self, error: ClientVisibleError) -> None:
        """End the request: with a reply if none began, and the connection with it."""
        self._lent.drop_head()
        if not self._lent.has_replied:
            head_only = self.scope["method"] == "HEAD"
            self._lent.write(render_error(error, close=True, head_only=head_only))
        if self.cycle is not None:
            self.cycle.disconnected = True
            self.cycle.message_event.set()
        self.transport.close()


def _too_large(limit_bytes: int) -> BodyTooLargeError:
    return BodyTooLargeError(f"the request body is larger than {limit_bytes} bytes")
