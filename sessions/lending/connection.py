"""One client connection as its front serves it: read a head, have it answered, read the next.

The front reads request heads and nothing else. A head is either answered here (probes, refusals)
or lent: the dispatcher gives the connection to the shard that owns the request, which reads the
body and writes the reply, and gives it back by `take_back`. Only the front ends a connection, in
a way that no reset eats the reply: shut down writing, discard input for a while, close (lending
rule 17). The next head is not served before the front's own last reply is flushed (rule 6).

The router and the lone shard use this same class; what differs is the dispatcher.

Spec: docs/lending.md#connections
"""

from __future__ import annotations

import asyncio
import contextlib
import socket
from typing import Final, Protocol, cast

from sessions.errors.client_visible import ClientVisibleError
from sessions.errors.group import draining_error
from sessions.errors.protocol import HeadTooSlowError
from sessions.lending.place import Place
from sessions.lending.probes import ProbeReply
from sessions.lending.slots import Slot, SlotEvent, SlotState, SlotTable
from sessions.routing.kinds import Named
from sessions.settings import Settings
from sessions.wire.gate import neutralise_upgrade, strip_leading_crlf
from sessions.wire.head import Head
from sessions.wire.refusals import refusal_body_of
from sessions.wire.repeated import RepeatedHeads
from sessions.wire.replies import render_error, render_reply

LINGER_QUIET_S: Final = 2.0  # input may pause this long before a lingering close ends
LINGER_TOTAL_S: Final = 30.0
# How long a closing front still waits for a head on a connection. Its client had no word of the
# end yet and may have sent its next request already: this is a guess at a round trip and a pause.
LAST_HEAD_S: Final = 0.3
# A read of 256 KiB can hold 8,000 probes; other connections get their turn after these (3 ms).
HEADS_PER_TURN: Final = 64
_UNCACHED: Final = ("cache-control", "no-store")


class Dispatcher(Protocol):
    """Who serves a request: the shards behind channels, or this process itself."""

    def choose(self, named: Named | None) -> Place:
        """Where a request must be served.

        Args:
            named: What session the request names, or None.

        Raises:
            ClientVisibleError: Nobody can; becomes the reply.
        """

    def lend(self, connection: Connection, place: Place, head: Head, payload: bytes) -> None:
        """Lend the connection for one exchange; `payload` starts with the head."""

    def release(self, slot: int, holders: list[int]) -> None:
        """The connection is gone; these shards hold a copy."""

    def forget(self, connection: Connection) -> None:
        """The connection is gone; drop what is known of a loan of it."""


class Reception(Protocol):
    """What a connection needs of the front that accepted it."""

    settings: Settings
    slots: SlotTable
    connections: set[Connection]
    heads: RepeatedHeads

    @property
    def dispatcher(self) -> Dispatcher:
        """Who serves what is not answered here."""

    @property
    def is_closing(self) -> bool:
        """Whether no further request is taken."""

    def now(self) -> float:
        """Monotonic seconds."""

    def answer_probe(self, head: Head) -> ProbeReply | None:
        """The answer of a probe, or None if the request is none."""

    def choose(self, head: Head) -> Place:
        """Where a request must be served; raises ClientVisibleError if nobody can."""


_HEAD: Final = SlotState.HEAD  # naming an enum member costs 70 ns on Python 3.11


class Connection(asyncio.Protocol):
    """Serves the heads of one client connection; see the module docstring.

    Attributes:
        slot: Its state; the dispatcher reads it, and moves it through `lend`.
        deadline: Loop time at which `on_deadline` is due unless the slot is lent.
    """

    __slots__ = (
        "_buffer",
        "_front",
        "_is_paused",
        "_linger_end",
        "_scanned",
        "_transport",
        "deadline",
        "slot",
    )
    _transport: asyncio.Transport

    def __init__(self, front: Reception, slot: Slot) -> None:
        self.slot = slot
        self.deadline = 0.0
        self._front = front
        self._buffer = b""
        self._scanned = 0
        self._is_paused = False
        self._linger_end = 0.0

    # --- what the loop calls

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Start to wait for a first head."""
        self._transport = cast("asyncio.Transport", transport)  # uvloop's does not inherit from it
        self._restart_clock()
        self._front.connections.add(self)

    def data_received(self, data: bytes) -> None:
        """Take bytes of a head, or discard what comes after the end."""
        if self.slot.state is _HEAD:
            was_begun = self._is_head_begun
            self._buffer += data
            if not was_begun:
                self._buffer = strip_leading_crlf(self._buffer)
            self._serve_heads()
            if not was_begun and self._waits_for_head and self._is_head_begun:
                self._restart_clock()  # empty lines restart nothing, else they never end
        elif self.slot.state is SlotState.ENDING:
            self.deadline = min(self._front.now() + LINGER_QUIET_S, self._linger_end)

    def resume_writing(self) -> None:
        """Our last reply is out: go on with what waited for it."""
        self._transport.set_write_buffer_limits()
        self._serve_on()

    def connection_lost(self, exc: Exception | None) -> None:
        """The connection is gone: tell every shard that holds a copy."""
        del exc
        self._front.connections.discard(self)
        self._front.dispatcher.forget(self)
        holders = self.slot.close()
        self._front.dispatcher.release(self.slot.number, holders)
        self._front.slots.give_back(self.slot)

    # --- what the dispatcher calls

    @property
    def transport(self) -> asyncio.Transport:
        """The stream transport, for a dispatcher that lends it inside this process."""
        return self._transport

    @property
    def descriptor(self) -> int:
        """The connection's file descriptor, owned by the transport."""
        descriptor: int = self._transport.get_extra_info("socket").fileno()
        return descriptor

    def pause_reading(self) -> None:
        """Stop reading while another process does."""
        if not self._is_paused:
            self._is_paused = True
            self._transport.pause_reading()

    def take_back(self, shard: int, leftover: bytes, *, kept: bool) -> None:
        """The exchange is over.

        Args:
            shard: Who had the connection.
            leftover: Bytes that follow the exchange; the begin of the next head.
            kept: Whether the connection can carry another exchange.
        """
        if self.slot.take_back(shard, kept=kept) is _HEAD:
            self._wait_for_head(leftover)
        else:
            self._linger()

    def go_on(self, unread: bytes) -> None:
        """Read on after the death of a shard; the slot is in HEAD.

        Args:
            unread: A request that no shard got to see, or nothing when its reply was whole.
        """
        self._wait_for_head(unread)

    def answer_refused(self, error: ClientVisibleError, head: Head, payload: bytes) -> None:
        """Answer a request that no shard executed; the slot is in HEAD."""
        self._buffer = payload
        self._answer_error(head, error)
        if self.slot.state is SlotState.HEAD:
            self._serve_heads()

    def answer_dead(self, error: ClientVisibleError, head: Head) -> None:
        """Answer an exchange whose shard died before any byte of a reply; the slot is in HEAD."""
        head_only = head.method == b"HEAD"
        reply = render_error(error, close=True, head_only=head_only, path=head.path)
        self._transport.write(reply)
        self.end()

    def cut(self) -> None:
        """End an exchange in the middle of its reply so that the client sees an error.

        A shutdown, because parked copies keep a mere close from being seen (lending rule 18).
        """
        borrowed = socket.socket(fileno=self.descriptor)  # no duplicate: none may be left
        with contextlib.suppress(OSError):  # the client was faster
            borrowed.shutdown(socket.SHUT_RDWR)
        borrowed.detach()
        self._transport.abort()

    def end(self) -> None:
        """Send what is written, then close without a reset; the slot is in HEAD."""
        self.slot.feed(SlotEvent.LAST_REPLY)
        self._linger()

    def hurry(self) -> None:
        """The front closes: wait for a head for a moment only, so that it gets its answer."""
        if self.slot.state is SlotState.HEAD:
            self._restart_clock()

    def refuse_begun_head(self, error: ClientVisibleError) -> None:
        """Answer a head that has begun and will not be waited for; the connection ends."""
        if self.slot.state is SlotState.HEAD and self._is_head_begun:
            self._refuse_head(error)

    @property
    def is_over(self) -> bool:
        """Whether nothing is lent, awaited or unsent any more."""
        return self.slot.state in (SlotState.ENDING, SlotState.CLOSED) and self.is_flushed

    @property
    def is_flushed(self) -> bool:
        """Whether all bytes written here have left."""
        return self._transport.get_write_buffer_size() == 0

    # --- what the front's sweep calls

    def on_deadline(self) -> None:
        """Nothing came in time: end an idle connection in silence, a slow head with a 408."""
        if self.slot.state is SlotState.LENT:
            return  # the shard keeps the time
        if self.slot.state is SlotState.ENDING:
            self._transport.abort()
        elif self._is_head_begun and self.is_flushed:
            self._refuse_head(self._too_slow())
        else:
            self.end()

    # --- inside

    def _too_slow(self) -> ClientVisibleError:
        if self._front.is_closing:
            return draining_error()
        limit_s = self._front.settings.head_timeout_s
        return HeadTooSlowError(f"the request head did not end within {limit_s:g} s")

    def _wait_for_head(self, leftover: bytes) -> None:
        self._buffer = leftover
        self._scanned = 0
        self._restart_clock()
        self._resume_reading()
        if leftover:
            self._serve_heads()

    @property
    def _waits_for_head(self) -> bool:
        return self.slot.state is _HEAD

    @property
    def _is_head_begun(self) -> bool:
        """Whether there is more than nothing or the half of an empty line."""
        return self._buffer not in (b"", b"\r")

    def _restart_clock(self) -> None:
        """A head has its time from its first byte on; without one the connection is idle."""
        front = self._front
        settings = front.settings
        limit_s = settings.head_timeout_s if self._is_head_begun else settings.idle_timeout_s
        if front.is_closing:
            limit_s = min(limit_s, LAST_HEAD_S)
        self.deadline = front.now() + limit_s

    def _serve_on(self) -> None:
        """Go on after a pause."""
        if self.slot.state is _HEAD:
            self._resume_reading()
            self._serve_heads()

    def _serve_heads(self) -> None:
        """Serve heads in the buffer while they can be answered here; at most one is lent."""
        left = HEADS_PER_TURN
        while self.slot.state is _HEAD:
            if not self._buffer:
                return
            if not left:
                self.pause_reading()  # else the buffer grows faster than it is served
                asyncio.get_running_loop().call_soon(self._serve_on)
                return
            left -= 1
            if self._transport.get_write_buffer_size():
                self._wait_for_flush()
                return
            if self._buffer.startswith(b"\r\n"):
                self._buffer, self._scanned = strip_leading_crlf(self._buffer), 0
                self._restart_clock()
                continue
            try:
                head = self._front.heads.read(
                    self._buffer, self._scanned, self._front.settings.head_bytes
                )
            except ClientVisibleError as error:
                self._refuse_head(error)
                return
            if head is None:
                self._scanned = max(0, len(self._buffer) - 3)
                return
            self._scanned = 0
            self._serve(head)

    def _refuse_head(self, error: ClientVisibleError) -> None:
        head_only = self._buffer.startswith(b"HEAD ")
        self._transport.write(render_error(error, close=True, head_only=head_only))
        self.end()

    def _serve(self, head: Head) -> None:
        probe = self._front.answer_probe(head)
        if probe is not None:
            headers = [("content-type", probe.content_type), _UNCACHED]
            self._answer(head, probe.status, headers, probe.body)
            return
        try:
            place = self._front.choose(head)
        except ClientVisibleError as error:
            self._answer_error(head, error)
        else:
            self._lend(head, place)

    def _lend(self, head: Head, place: Place) -> None:
        payload, self._buffer = self._buffer, b""
        if head.upgrades:
            payload = neutralise_upgrade(payload, head)
        self._front.dispatcher.lend(self, place, head, payload)

    def _answer_error(self, head: Head, error: ClientVisibleError) -> None:
        self._answer(head, error.status, error.headers, refusal_body_of(error, head.path))

    def _answer(self, head: Head, status: int, headers: list[tuple[str, str]], body: bytes) -> None:
        close = self._closes_after(head)
        head_only = head.method == b"HEAD"
        self._transport.write(render_reply(status, headers, body, close=close, head_only=head_only))
        self._buffer = self._buffer[head.size :]
        if close:
            self.end()
            return
        self._restart_clock()
        self._resume_reading()

    def _closes_after(self, head: Head) -> bool:
        # Heads only are read here, so a request with a body cannot be passed over.
        return head.has_body or not head.keep_alive or self._front.is_closing

    def _linger(self) -> None:
        now = self._front.now()
        self._linger_end = now + LINGER_TOTAL_S
        self.deadline = now + LINGER_QUIET_S
        self._buffer = b""
        try:
            self._transport.write_eof()
        except (OSError, RuntimeError):
            self._transport.abort()
            return
        self._resume_reading()

    def _resume_reading(self) -> None:
        if self._is_paused:
            self._is_paused = False
            self._transport.resume_reading()

    def _wait_for_flush(self) -> None:
        # A client that does not read cannot make the buffer grow meanwhile.
        self.pause_reading()
        self._transport.set_write_buffer_limits(0)
