"""The loans of a shard behind a router: adopt connections, park them, give them back.

A LEND with a descriptor makes a new `Exchange` on it; one without finds the parked exchange of its
slot. A slot is known from the moment its LEND is received, because RELEASE may come before the
adoption is done (lending rule 23). What cannot be executed is refused with all its bytes (rule
13). Every loan is answered by exactly one BACK (rule 8).

Spec: docs/lending.md#loans
"""

from __future__ import annotations

import asyncio
import logging
import os
import socket
from typing import Final

from sessions.errors.client_visible import ClientVisibleError, RequestError
from sessions.errors.unseen import LocalProtocolError
from sessions.lending.cells import Cells
from sessions.lending.channel import Channel
from sessions.lending.messages import Keep, Kind, LendFlag, Message, RefuseReason
from sessions.shard.channel_claims import ChannelClaims
from sessions.shard.cycle import Service
from sessions.shard.exchange import Exchange, LoanState
from sessions.shard.lent_transport import HeldHeads, LentTransport
from sessions.shard.sweep import Sweep
from sessions.wire.head import Head
from sessions.wire.repeated import RepeatedHeads

logger = logging.getLogger(__name__)

# Plain ints: naming an enum member costs 70 ns on Python 3.11, `&` of a flag 900 ns.
_LEND: Final = int(Kind.LEND)
_DESCRIPTOR: Final = int(LendFlag.DESCRIPTOR)
_LAST: Final = int(LendFlag.LAST)
_BACK: Final = int(Kind.BACK)
_KEPT: Final = int(Keep.KEPT)
_LOST: Final = int(Keep.LOST)


class Loans:
    """Takes LEND and RELEASE messages, sends BACK and REFUSE; see the module docstring."""

    def __init__(
        self,
        *,
        service: Service,
        cells: Cells,
        body_limit_bytes: int,
        body_timeout_s: float,
        parked_limit: int,
        claims: ChannelClaims,
    ) -> None:
        self.body_limit_bytes = body_limit_bytes
        self._service = service
        self._heads = RepeatedHeads()
        self._cells = cells
        self._loop = asyncio.get_running_loop()
        self._exchanges: dict[int, Exchange] = {}
        self._parked: dict[int, Exchange] = {}  # in the order in which they were given back
        self._parked_limit = parked_limit
        self._claims = claims
        self._adoptions: set[asyncio.Task[None]] = set()
        self._sweep = Sweep(body_timeout_s)
        self._held_heads = HeldHeads()
        self._channel: Channel

    def attach(self, channel: Channel) -> None:
        """Use this channel from now on."""
        self._channel = channel

    @property
    def parked_count(self) -> int:
        """Connections of which this shard holds a copy."""
        return len(self._exchanges)

    @property
    def lent_count(self) -> int:
        """Exchanges in progress."""
        lent = LoanState.LENT
        return sum(1 for exchange in self._exchanges.values() if exchange.loan is lent)

    def give_up(self, error: ClientVisibleError) -> int:
        """End every exchange, with the error if no reply began; how many were cut by that."""
        return sum([exchange.give_up(error) for exchange in list(self._exchanges.values())])

    def stop(self) -> None:
        """Stop the sweep and drop all copies."""
        self._sweep.stop()
        for exchange in list(self._exchanges.values()):
            exchange.release()

    # --- what the channel calls

    def on_message(self, message: Message, descriptor: int | None) -> None:
        """Act on a word of the router.

        Raises:
            LocalProtocolError: The router said what a router does not say.
        """
        if message.kind == _LEND:
            self._on_lend(message, descriptor)
        elif message.kind == Kind.RELEASE:
            exchange = self._exchanges.pop(message.slot, None)
            if exchange is not None:
                self._parked.pop(message.slot, None)
                exchange.release()
        elif message.kind == Kind.CLAIMED:
            self._claims.on_claimed(message)
        else:
            raise LocalProtocolError(f"message of kind {message.kind} from the router")

    def _on_lend(self, message: Message, descriptor: int | None) -> None:
        if message.argument & _DESCRIPTOR:
            if descriptor is None:
                logger.warning("no descriptor left for a connection slot=%d", message.slot)
                self._refuse(message, RefuseReason.NO_DESCRIPTOR)
                return
            exchange = self._new_exchange()
            exchange.slot = message.slot
            self._exchanges[message.slot] = exchange
            task = self._loop.create_task(self._adopt(exchange, descriptor, message))
            self._adoptions.add(task)
            task.add_done_callback(self._adoptions.discard)
            return
        parked = self._exchanges.get(message.slot)
        if parked is None:
            self._refuse(message, RefuseReason.NOT_PARKED)
            return
        self._parked.pop(message.slot, None)
        parked.lend(
            message.generation,
            self._head_of(message),
            message.payload,
            is_last=bool(message.argument & _LAST),
        )

    def _new_exchange(self) -> Exchange:
        return Exchange(self._service, self)

    async def _adopt(self, exchange: Exchange, descriptor: int, message: Message) -> None:
        try:
            sock = socket.socket(fileno=descriptor)
        except OSError as error:
            logger.warning("no socket of a descriptor slot=%d error=%s", message.slot, error)
            os.close(descriptor)
            if self._forget_adoption(exchange):
                self._refuse(message, RefuseReason.NO_DESCRIPTOR)
            return
        exchange.announce(
            message.generation,
            self._head_of(message),
            message.payload,
            is_last=bool(message.argument & _LAST),
        )
        try:
            await self._loop.connect_accepted_socket(lambda: exchange, sock)
        except OSError as error:
            logger.warning("adoption failed slot=%d error=%s", message.slot, error)
            sock.close()
            if self._forget_adoption(exchange):
                self._send_back(message.slot, message.generation, b"", kept=False)

    def _head_of(self, message: Message) -> Head | None:
        """The head as the router read it, or None if this process reads something else there."""
        try:
            head = self._heads.read(message.payload, 0, message.head_bytes)
        except RequestError:
            return None
        return head if head is not None and head.size == message.head_bytes else None

    def _forget_adoption(self, exchange: Exchange) -> bool:
        """Whether the router still waits for a word of it: no RELEASE came meanwhile."""
        is_awaited = self._exchanges.get(exchange.slot) is exchange
        if is_awaited:
            del self._exchanges[exchange.slot]
        return is_awaited

    def _refuse(self, message: Message, reason: RefuseReason) -> None:
        self._channel.send(message._replace(kind=Kind.REFUSE, argument=reason))

    # --- what an exchange calls

    def wrap(self, transport: asyncio.Transport, exchange: Exchange) -> LentTransport:
        """A transport whose close ends this process's copy of the connection."""
        return LentTransport(transport, self._cells, exchange.slot, self._held_heads)

    def on_begun(self, exchange: Exchange) -> None:
        """Look after the exchange if it lasts."""
        self._sweep.add(exchange)

    def take_back(self, exchange: Exchange, leftover: bytes, *, kept: bool) -> None:
        """Tell the router that the exchange is over."""
        self._sweep.discard(exchange)
        self._send_back(exchange.slot, exchange.generation, leftover, kept=kept)
        if kept:
            self._park(exchange)

    def _park(self, exchange: Exchange) -> None:
        """Keep the copy; over the limit, wish to be rid of the one that waits the longest."""
        self._parked[exchange.slot] = exchange
        if len(self._parked) > self._parked_limit:
            oldest = self._parked.pop(next(iter(self._parked)))
            wish = Message(Kind.WISH_RELEASE, 0, oldest.slot, 0, oldest.generation, b"")
            self._channel.send_soon(wish)

    def on_lost(self, exchange: Exchange) -> None:
        """Forget a copy that is gone."""
        if self._exchanges.get(exchange.slot) is exchange:
            del self._exchanges[exchange.slot]
            self._parked.pop(exchange.slot, None)

    def _send_back(self, slot: int, generation: int, leftover: bytes, *, kept: bool) -> None:
        keep = _KEPT if kept else _LOST
        self._channel.send_soon(Message(_BACK, keep, slot, 0, generation, leftover))
