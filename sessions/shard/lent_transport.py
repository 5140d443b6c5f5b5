"""What uvicorn takes for its transport while a connection is lent.

It marks the state cell before the first byte of a final reply head (lending rule 16), tells of an
interim 100, and starts to read the client's socket only when there is something to read for:
body bytes that are still missing, or a client that may have gone while the application works,
which is looked after from the second sweep on. So an exchange whose request came whole with the
loan costs no poll registration. `LentTransport` is for a connection that another process lent;
`HouseTransport` for one of the lone shard's own, whose close only ends the loan.

Spec: docs/lending.md#lent-transport
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any, Final

from uvicorn.protocols.http.flow_control import FlowControl

from sessions.lending.cells import Cells, CellState

_REPLYING: Final = CellState.REPLYING  # naming an enum member costs 70 ns on Python 3.11
_COMPLETE: Final = CellState.COMPLETE


JOIN_BYTES: Final = 16384  # a guess: copying more costs what a second write does
# While its client reads as fast as it writes, an application is never told to wait, and the loop
# never turns: small requests beside one reply of 1 GiB waited up to 0.8 s (measured on two cores).
FAIR_BYTES: Final = 131072


class HeldHeads:
    """Reply heads that wait for their bodies, so that one write sends both.

    An application sends head and body in two steps, mostly at once; each write is a system call,
    a segment, and a wake-up of the client. A head waits until the loop turns once, not longer.
    """

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._transports: list[LentTransport] = []

    def add(self, transport: LentTransport) -> None:
        """Release the head of this transport when the loop turns, unless it has gone by then."""
        if not self._transports:
            self._loop.call_soon(self._release)
        self._transports.append(transport)

    def _release(self) -> None:
        transports, self._transports = self._transports, []
        for transport in transports:
            transport.release_head()


class LentTransport(asyncio.Transport):
    """A stream transport that belongs to another process's client connection.

    Attributes:
        on_interim: Called when a 1xx was written; the exchange sets it.
        on_long_write: Called when FAIR_BYTES of bodies were written since the last call; likewise.
        is_body_missing: Whether body bytes are still to come; the exchange tells.
    """

    def __init__(
        self, transport: asyncio.Transport, cells: Cells, slot: int, held_heads: HeldHeads
    ) -> None:
        """Wrap.

        Args:
            transport: Of the connection's descriptor in this process.
            cells: Where the reply's progress is written.
            slot: The connection's slot number.
            held_heads: Of this process.
        """
        super().__init__()
        self._transport = transport
        self._cells = cells
        self._slot = slot
        self._generation = 0
        self._awaits_final_head = True
        self._held_head: bytes | bytearray | memoryview = b""
        self._held_heads = held_heads
        self._is_reading = True
        self._is_started = False
        self._wants_input = True
        self._is_full = False
        self.on_interim: Callable[[], None] = _do_nothing
        self.on_long_write: Callable[[], None] = _do_nothing
        self._written_bytes = 0
        self.is_body_missing = False
        self.get_extra_info = transport.get_extra_info  # type: ignore[method-assign]  # speed
        self.get_write_buffer_size = transport.get_write_buffer_size  # type: ignore[method-assign]

    @property
    def has_replied(self) -> bool:
        """Whether a final reply of this loan has begun; its head may be held."""
        return not self._awaits_final_head

    def begin_loan(self, generation: int) -> None:
        """A new exchange starts."""
        self._generation = generation
        self._awaits_final_head = True
        self._is_full = False

    def mark_complete(self) -> None:
        """Every byte of the reply is out and the request was read to its end."""
        self._cells.mark(self._slot, self._generation, _COMPLETE)

    def write(self, data: bytes | bytearray | memoryview) -> None:
        """Write reply bytes; a final head waits for what follows it, until the loop turns once."""
        if self._held_head:
            self._write_after_head(data)
        elif not self._awaits_final_head:
            self._write_body(data)
        elif data[:10] == b"HTTP/1.1 1":
            self.on_interim()
            self._transport.write(data)
        else:
            self._awaits_final_head = False
            self._held_head = data
            self._held_heads.add(self)

    def release_head(self) -> None:
        """Write a head that waits for its body, marking the cell before it."""
        if self._held_head and not self._transport.is_closing():
            self._write_after_head(b"")

    def drop_head(self) -> None:
        """Forget a head of which nothing is written; another may come in its place."""
        if self._held_head:
            self._held_head = b""
            self._awaits_final_head = True

    def _write_after_head(self, data: bytes | bytearray | memoryview) -> None:
        head, self._held_head = self._held_head, b""
        self._cells.mark(self._slot, self._generation, _REPLYING)
        if len(data) <= JOIN_BYTES:
            self._transport.write(b"".join((head, data)) if data else head)
        else:
            self._transport.write(head)
            self._write_body(data)

    def _write_body(self, data: bytes | bytearray | memoryview) -> None:
        self._transport.write(data)
        self._written_bytes += len(data)
        if self._written_bytes >= FAIR_BYTES:
            self._written_bytes = 0
            self.on_long_write()

    def pause_reading(self) -> None:
        """Stop to read at once."""
        self._wants_input = False
        if self._is_reading and self._is_started:
            self._is_reading = False
            self._transport.pause_reading()

    def on_started(self) -> None:
        """The loop reads the connection from now on: uvloop starts after `connection_made`.

        A pause before that has no effect there, so it is made up for now. Without it a parked
        copy would go on to read what belongs to the router (lending rule 1).
        """
        self._is_started = True
        if not self._wants_input:
            self.pause_reading()

    def resume_reading(self) -> None:
        """Read again: at once for a body that is missing, else by the next `read_now`."""
        self._wants_input = True
        if self.is_body_missing:
            self.read_now()

    def stop_input(self) -> None:
        """The client sent enough ahead: read no more in this loan, whoever asks for it."""
        self._is_full = True
        self.pause_reading()

    def park(self, flow: FlowControl) -> None:
        """The loan is over: read no more before the next."""
        flow.pause_reading()

    def hand_over(self) -> None:
        """A closed loan is a closed copy: nothing is left to hand over."""

    def read_now(self) -> None:
        """Read if reading is wanted."""
        if self._wants_input and not self._is_reading and not self._is_full:
            self._is_reading = True
            self._transport.resume_reading()

    def on_flushed(self) -> None:
        """The write buffer ran empty; nothing waits for that here."""

    def is_closing(self) -> bool:
        """Whether the loan is at its end because the connection is."""
        return self._transport.is_closing()

    def close(self) -> None:
        """Flush, then end the loan and with it the connection."""
        self.release_head()
        self._transport.close()

    def abort(self) -> None:
        """End the loan and the connection at once."""
        self._transport.abort()

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        """Pass the limits on."""
        self._transport.set_write_buffer_limits(high, low)


class SpentTransport(asyncio.Transport):
    """What an application's side of an exchange holds once its reply is written.

    uvicorn closes the transport of an application that fails. After the reply, when the connection
    may serve the next exchange already, such a failure must reach nobody.
    """

    def close(self) -> None:
        """Close nothing."""


class HouseTransport(LentTransport):
    """A connection of this same process: `close` flushes, then calls back, and closes nothing."""

    def __init__(
        self,
        transport: asyncio.Transport,
        cells: Cells,
        slot: int,
        held_heads: HeldHeads,
        on_closed: Callable[[], Any],
    ) -> None:
        """Wrap; `on_closed` is called when a closed loan is flushed."""
        super().__init__(transport, cells, slot, held_heads)
        self._on_closed = on_closed
        self._is_closed = False

    def pause_reading(self) -> None:
        """Stop to read."""
        if self._is_reading:
            self._is_reading = False
            self._transport.pause_reading()

    def resume_reading(self) -> None:
        """Read again at once: this process polls the connection anyway."""
        if not self._is_reading and not self._is_full:
            self._is_reading = True
            self._transport.resume_reading()

    def park(self, flow: FlowControl) -> None:
        """The loan is over: its own process reads on."""
        flow.resume_reading()
        self.hand_over()

    def read_now(self) -> None:
        """Nothing to do: a house connection is read unless it is paused."""

    def is_closing(self) -> bool:
        """Whether the loan or the connection is at its end."""
        return self._is_closed or self._transport.is_closing()

    def close(self) -> None:
        """Flush, then end the loan."""
        if self._is_closed:
            return
        self.release_head()
        self._is_closed = True
        self.write = _drop  # type: ignore[method-assign]  # speed: asking would cost every write
        if self._transport.is_closing():
            return  # its connection_lost ends the loan
        self.pause_reading()
        if self._transport.get_write_buffer_size():
            self._transport.set_write_buffer_limits(0)
        else:
            self._on_closed()

    def on_flushed(self) -> None:
        """The write buffer ran empty."""
        if self._is_closed and not self._transport.is_closing():
            self._transport.set_write_buffer_limits()
            self._on_closed()

    def hand_over(self) -> None:
        """The connection's own process reads on."""
        self._is_full = False
        self.resume_reading()


def _do_nothing() -> None:
    pass


def _drop(data: bytes | bytearray | memoryview) -> None:
    del data
