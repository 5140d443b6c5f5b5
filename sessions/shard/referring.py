"""Loans and exchanges of a shard whose application has sessions that are opened by their names.

They do what all loans and exchanges do. A loan that is RESERVED brings a claim key, which this
shard alone may claim until the loan ends. Bodies may name sessions, too (rule 14): the bytes of a
request that may have to go back are kept, until it is known. One that goes back was executed by
nobody: all its bytes go to the router with the claim key in front, and the copy of the connection
is parked. A loan that is FINAL never goes back.

Spec: docs/lending.md#referrals
"""

from __future__ import annotations

from typing import Final, cast

from sessions.lending.messages import Kind, LendFlag, Message, RefuseReason, request_in
from sessions.routing.claim_keys import CLAIM_KEY_BYTES
from sessions.shard.cycle import Service
from sessions.shard.exchange import Exchange, LoanState
from sessions.shard.loans import Loans
from sessions.shard.referral import (
    BODY_LIMIT_BYTES,
    SCOPE_KEY,
    BodyName,
    BodyNames,
    Referral,
)
from sessions.wire.head import Head

# Body, what frames its chunks, and what was sent ahead; over it a request is served where it is.
_KEPT_BYTES: Final = 4 * BODY_LIMIT_BYTES


class ReferringLoans(Loans):
    """See the module docstring."""

    _names: BodyNames
    _finals: dict[int, int]  # by slot: the last generation that is FINAL
    _reserved: dict[int, bytes]  # by slot, while it is lent

    def inquire(self, names: BodyNames) -> None:
        """Hand back what these routes' bodies name and this shard does not hold; call it first."""
        self._names = names
        self._finals = {}
        self._reserved = {}

    def on_message(self, message: Message, descriptor: int | None) -> None:
        """See `Loans.on_message`."""
        if message.kind == Kind.RELEASE:
            self._unreserve(message.slot)
        super().on_message(message, descriptor)

    def _new_exchange(self) -> Exchange:
        return ReferringExchange(self._service, self)

    def _on_lend(self, message: Message, descriptor: int | None) -> None:
        if message.argument & LendFlag.FINAL:
            self._finals[message.slot] = message.generation
        if message.argument & LendFlag.RESERVED:
            key = message.payload[:CLAIM_KEY_BYTES]
            self._claims.reserve(key)
            self._reserved[message.slot] = key
            message = message._replace(payload=request_in(message))
        super()._on_lend(message, descriptor)

    def _refuse(self, message: Message, reason: RefuseReason) -> None:
        self._unreserve(message.slot)
        super()._refuse(message, reason)

    def _send_back(self, slot: int, generation: int, leftover: bytes, *, kept: bool) -> None:
        self._unreserve(slot)
        super()._send_back(slot, generation, leftover, kept=kept)

    def _unreserve(self, slot: int) -> None:
        """The loan is over, or about to be: from now on claims of its key are asked for."""
        key = self._reserved.pop(slot, None)
        if key is not None:
            self._claims.unreserve(key)

    def name_for(self, head: Head, slot: int, generation: int) -> BodyName | None:
        """Where a body may name a session of another shard; None if it goes to nobody else."""
        if self._finals.pop(slot, None) == generation:
            return None
        return self._names.name_for(head)

    def refer(self, exchange: Exchange, key: bytes, head_bytes: int, request: bytes) -> None:
        """Hand a request back: this shard does not hold what its body names."""
        self._sweep.discard(exchange)
        self._unreserve(exchange.slot)
        self._channel.send(
            Message(
                Kind.REFUSE,
                RefuseReason.NOT_HELD,
                exchange.slot,
                head_bytes,
                exchange.generation,
                key + request,
            )
        )
        self._park(exchange)


class ReferringExchange(Exchange):
    """See the module docstring."""

    def __init__(self, service: Service, loans: ReferringLoans) -> None:
        super().__init__(service, loans)
        self._loans = loans
        self._request: bytearray | None = None  # all its bytes, while it may go back
        self._head_bytes = 0

    def lend(
        self, generation: int, head: Head | None, data: bytes, *, is_last: bool = False
    ) -> None:
        """Begin an exchange; see `Exchange.lend`."""
        self._request = None
        super().lend(generation, head, data, is_last=is_last)
        name = None if head is None else self._loans.name_for(head, self.slot, generation)
        if head is None or name is None or self.loan is not LoanState.LENT:
            return
        # The application's task has not run yet.
        self._request, self._head_bytes = bytearray(data), head.size
        scope = cast("dict[str, object]", self.cycle.scope)
        scope[SCOPE_KEY] = Referral(name=name, refer=self._refer)

    def data_received(self, data: bytes) -> None:
        """Take body bytes, and note them."""
        if self._request is not None:
            self._request += data
            if len(self._request) > self._head_bytes + _KEPT_BYTES:
                self._request = None
        super().data_received(data)

    async def _refer(self, key: bytes) -> bool:
        if self._lent.get_write_buffer_size():  # an interim 100 that has not left
            self._lent.set_write_buffer_limits(0)
            await self.flow.drain()
            self._lent.set_write_buffer_limits()
        if self.loan is not LoanState.LENT:
            return True  # the client is gone
        if self._lent.is_closing():
            self.cycle.disconnected = True  # it left just now, and the application owes it nothing
            return True
        if self._request is None:
            return False
        request, self._request = bytes(self._request), None
        self.cycle.disconnected = True  # the application's side of it is over
        self.loan = LoanState.PARKED
        self._leftover = b""
        self._service.connections.discard(self)
        self._lent.park(self.flow)
        self._loans.refer(self, key, self._head_bytes, request)
        return True
