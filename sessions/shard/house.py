"""The lone shard lends to itself: the front's dispatcher and the exchanges' lender in one.

The front's connection and the exchange take turns as the protocol of one transport, so a lone
shard runs the same head gate, the same connection machine, the same exchange and the same ending
as a group with a router (lending rule 2), and pays neither for a channel nor for a descriptor.

Spec: docs/lending.md#lone-shard
"""

from __future__ import annotations

import asyncio
from typing import Final

from sessions.errors.client_visible import ClientVisibleError
from sessions.errors.group import draining_error, starting_error
from sessions.errors.unseen import LocalProtocolError
from sessions.lending.connection import Connection
from sessions.lending.group import Group
from sessions.lending.place import Place
from sessions.routing.kinds import Named
from sessions.shard.cycle import Service
from sessions.shard.exchange import Exchange
from sessions.shard.lent_transport import HeldHeads, HouseTransport, LentTransport
from sessions.shard.sweep import Sweep
from sessions.wire.gate import neutral_head
from sessions.wire.head import Head

_SELF: Final = Place(shard=0)


class House:
    """Serves the connections of its own process; see the module docstring."""

    def __init__(self, group: Group) -> None:
        self.body_limit_bytes = group.settings.body_bytes
        self._service: Service | None = None
        self._cells = group.cells
        self._loop = asyncio.get_running_loop()
        self._exchanges: dict[int, Exchange] = {}
        self._borrowed: dict[int, Connection] = {}
        self._sweep = Sweep(group.settings.body_timeout_s)
        self._held_heads = HeldHeads()
        self._is_closing = False
        self._board = group.board

    def open(self, service: Service) -> None:
        """The application has started: take requests from now on."""
        self._service = service

    @property
    def lent_count(self) -> int:
        """Exchanges in progress."""
        return len(self._borrowed)

    def close(self) -> None:
        """Take no further request."""
        self._is_closing = True

    def give_up(self, error: ClientVisibleError) -> int:
        """End every exchange, with the error if no reply began; how many were cut by that."""
        return sum([exchange.give_up(error) for exchange in list(self._exchanges.values())])

    def stop(self) -> None:
        """Stop the sweep."""
        self._sweep.stop()

    # --- what the front calls

    def choose(self, named: Named | None) -> Place:
        """This process, while it takes requests.

        Raises:
            NotReadyError: The application has not started, or the group is draining.
        """
        del named
        if self._service is None:
            raise starting_error()
        if self._is_closing:
            raise draining_error()
        return _SELF

    def lend(self, connection: Connection, place: Place, head: Head, payload: bytes) -> None:
        """Serve one exchange of the connection here."""
        slot = connection.slot
        slot.lend(place.shard)
        self._borrowed[slot.number] = connection
        exchange = self._exchanges.get(slot.number)
        if exchange is None:
            exchange = self._new_exchange()
            exchange.slot = slot.number
            self._exchanges[slot.number] = exchange
            exchange.connection_made(connection.transport)
        connection.transport.set_protocol(exchange)
        exchange.lend(slot.generation, neutral_head(head), payload, is_last=self._board.draining)

    def _new_exchange(self) -> Exchange:
        if self._service is None:
            raise LocalProtocolError("a loan before the application has started")
        return Exchange(self._service, self)

    def release(self, slot: int, holders: list[int]) -> None:
        """The connection is gone."""
        del holders
        self._exchanges.pop(slot, None)

    def forget(self, connection: Connection) -> None:
        """The connection is gone."""
        self._borrowed.pop(connection.slot.number, None)

    # --- what an exchange calls

    def wrap(self, transport: asyncio.Transport, exchange: Exchange) -> LentTransport:
        """A transport whose close ends the loan only."""

        def on_closed() -> None:
            self._loop.call_soon(exchange.connection_lost, None)

        return HouseTransport(transport, self._cells, exchange.slot, self._held_heads, on_closed)

    def on_begun(self, exchange: Exchange) -> None:
        """Look after the exchange if it lasts."""
        self._sweep.add(exchange)

    def on_lost(self, exchange: Exchange) -> None:
        """The exchange is of no more use; its slot may serve another connection by now."""
        if self._exchanges.get(exchange.slot) is exchange:
            del self._exchanges[exchange.slot]

    def take_back(self, exchange: Exchange, leftover: bytes, *, kept: bool) -> None:
        """The exchange is over: the front's connection is the protocol again."""
        self._sweep.discard(exchange)
        connection = self._borrowed.pop(exchange.slot)
        transport = connection.transport
        if transport.is_closing():
            connection.connection_lost(None)
            return
        transport.set_protocol(connection)
        if not kept:
            exchange.hand_over()
        connection.take_back(_SELF.shard, leftover, kept=kept)
