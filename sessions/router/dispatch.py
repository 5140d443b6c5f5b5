"""The router's dispatcher: lends connections to shards over their channels.

`choose` finds the owner of the session that a request names, by hash or by claim; without one it
takes the least loaded shard. `lend` sends the bytes read so far, with the descriptor when the shard
holds no parked copy, and the answers BACK and REFUSE come to `on_message`, as do the claims of
shards. Whoever names a session that requests can open is lent with its key reserved, so that all
who name it at once meet in one shard. Nothing here reads a body or waits.

Spec: docs/lending.md#router
"""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable
from typing import Final

from sessions.errors.episodes import McpSessionGoneError
from sessions.errors.group import (
    GroupDyingError,
    OverloadedError,
    ShardDiedError,
    ShardGoneError,
    draining_error,
    starting_error,
)
from sessions.errors.unseen import LocalProtocolError
from sessions.lending.board import Row
from sessions.lending.connection import Connection
from sessions.lending.messages import Claimed, Keep, Kind, LendFlag, Message, RefuseReason
from sessions.lending.place import Place
from sessions.router.claims import ClaimTable, HeldBy
from sessions.router.shards import Loan, ShardLink, least_loaded
from sessions.routing.claim_keys import CLAIM_KEY_BYTES, claim_key
from sessions.routing.claimed_kinds import MCP_SESSION
from sessions.routing.ids import owner_of
from sessions.routing.kinds import Named, Ownership
from sessions.wire.head import Head

# Plain ints: naming an enum member costs 70 ns on Python 3.11, and every exchange passes here.
_LEND: Final = int(Kind.LEND)
_DESCRIPTOR: Final = int(LendFlag.DESCRIPTOR)
_FINAL: Final = int(LendFlag.FINAL)
_RESERVED: Final = int(LendFlag.RESERVED)
_BACK: Final = int(Kind.BACK)
_KEPT: Final = int(Keep.KEPT)
_ANSWERS: Final = (_BACK, int(Kind.REFUSE))
_HASH: Final = Ownership.HASH


class Dispatch:
    """Knows the shards and what each of them has; see the module docstring.

    Attributes:
        links: Of the shards that said HELLO, by index.
        claims: What shards claimed.
        counts_claims: Whether sessions are claimed, so that the board need not be asked for them.
        cause: Why the group is dying, or "".
    """

    def __init__(self, shards: int, *, is_leaving: Callable[[], bool] = lambda: False) -> None:
        """Know no shard yet.

        Args:
            shards: How many will say HELLO.
            is_leaving: Whether the group was told to stop: each reply is its connection's last.
        """
        self.links: dict[int, ShardLink] = {}
        self.claims = ClaimTable()
        self.counts_claims = False
        self.cause = ""
        self._turns = itertools.count(1)  # of choices among shards
        self._is_leaving = is_leaving
        self._shards = shards
        self._ready: list[ShardLink] = []  # every link by index, once all said HELLO
        self._alive: list[ShardLink] = []  # those of them that live
        self._is_draining = False

    @property
    def is_ready(self) -> bool:
        """Whether every shard said HELLO."""
        return bool(self._ready)

    @property
    def lent_count(self) -> int:
        """Exchanges that shards have."""
        return sum(len(link.loans) for link in self.links.values())

    def add(self, link: ShardLink) -> None:
        """A shard said HELLO.

        Raises:
            LocalProtocolError: Its index is taken or not one of this group.
        """
        if link.index in self.links or not 0 <= link.index < self._shards:
            raise LocalProtocolError(f"unexpected HELLO of shard {link.index}")
        self.links[link.index] = link
        if len(self.links) == self._shards:
            self._ready = [self.links[index] for index in range(self._shards)]
            self._alive = list(self._ready)

    def bury(self, link: ShardLink) -> None:
        """A shard died and the group goes on without it: its sessions are gone."""
        link.is_alive = False
        self.claims.bury(link.index)
        link.channel.close()
        link.copies.clear()  # else it keeps connections that close later
        self._alive = [other for other in self._alive if other.is_alive]

    @property
    def alive_count(self) -> int:
        """Shards that serve."""
        return len(self._alive)

    def close(self) -> None:
        """Take no further request."""
        self._is_draining = True

    def refresh(self, row_of: Callable[[int], Row]) -> None:
        """Take the open sessions of each shard from the board, unless claims tell of them."""
        if self.counts_claims:
            return
        for link in self._ready:
            row = row_of(link.index)
            link.load.refresh(row.sessions, time.monotonic() - row.beat_age_s)

    # --- what the front calls

    def choose(self, named: Named | None) -> Place:
        """The owner of a request, or the least loaded shard if it has none.

        Raises:
            GroupDyingError: A member died.
            NotReadyError: The group is starting or draining.
            OverloadedError: The owner is too far behind with its messages.
            ShardGoneError: The owner died, and the group goes on without it.
        """
        link: ShardLink | None
        key, is_newcomer = b"", False
        if self.cause:
            raise dying_error(self.cause)
        if self._is_draining:
            raise draining_error()
        if not self._ready:
            raise starting_error()
        if named is None:
            link, is_newcomer = self._newcomers_shard(), True
        elif named.kind.ownership is _HASH:
            link = self._ready[owner_of(named.key, self._shards)]
            if not link.is_alive:
                raise gone_error(link)
        else:
            # Without a holder the session ended, or never was: any shard says so, or opens it.
            kind = named.kind
            key = claim_key(kind.name, named.key)
            link = self._holder_of(key, kind.name)
            if link is None:
                link, is_newcomer = self._newcomers_shard(), True
            if kind.cookie is None:
                key = b""  # heads of such kinds name what is open, or was
        if link.channel.is_over_limit:
            raise behind_error(link)
        if key:
            return Place(shard=link.index, key=key, is_newcomer=is_newcomer)
        return link.newcomers_place if is_newcomer else link.place

    def _newcomers_shard(self) -> ShardLink:
        link = least_loaded([n for n in self._alive if not n.channel.is_over_limit] or self._alive)
        link.load.last_turn = next(self._turns)
        return link

    def _holder_of(self, key: bytes, kind: str = "") -> ShardLink | None:
        """The live holder of a claim, None if nobody has it.

        Raises:
            ShardGoneError: The holder died.
            McpSessionGoneError: Likewise, of a claim of that kind.
        """
        holder = self.claims.find(key)
        if holder is None:
            return None
        link = self.links[holder.shard]
        if not holder.is_live:
            raise gone_error(link, kind)
        return link

    def lend(self, connection: Connection, place: Place, head: Head, payload: bytes) -> None:
        """Send the request to a shard, and the connection with it if it holds no copy."""
        connection.pause_reading()
        shard = place.shard
        link = self.links[shard]
        slot = connection.slot
        needs_descriptor = slot.lend(shard)
        link.loans[slot.number] = Loan(connection=connection, place=place, head=head)
        flags = _DESCRIPTOR if needs_descriptor else 0
        if place.is_newcomer:
            link.load.arrive()
        if place.is_final:
            flags |= _FINAL
        if place.key:
            self.claims.reserve(place.key, shard)
            flags |= _RESERVED
            payload = place.key + payload
        if self._is_leaving():
            flags |= LendFlag.LAST
        message = Message(_LEND, flags, slot.number, head.size, slot.generation, payload)
        if needs_descriptor:
            link.copies[slot.number] = connection
            link.channel.send(message, connection.descriptor)
        else:
            link.channel.send_soon(message)

    def release(self, slot: int, holders: list[int]) -> None:
        """Tell the shards that hold a copy to drop it."""
        for index in holders:
            link = self.links[index]
            link.copies.pop(slot, None)
            link.channel.send(Message(Kind.RELEASE, 0, slot, 0, 0, b""))

    def forget(self, connection: Connection) -> None:
        """The connection is gone: a late word about its loan means nothing."""
        for link in self.links.values():
            number = connection.slot.number
            if connection.slot.is_lent_to(link.index) and number in link.loans:
                self._end_loan(link, number)

    def _end_loan(self, link: ShardLink, number: int) -> None:
        place = link.loans.pop(number).place
        if place.key:
            self.claims.unreserve(place.key, link.index)
        if place.is_newcomer:
            link.load.leave()
            if not self.counts_claims:
                link.load.note_end(time.monotonic())

    # --- what a channel calls

    def on_message(self, link: ShardLink, message: Message) -> None:
        """Act on a word of a shard.

        Raises:
            LocalProtocolError: A shard said what a shard does not say.
        """
        kind, argument, number, _, generation, payload = message
        if kind not in _ANSWERS:
            self._on_wish(link, message)
            return
        loan = link.loans.get(number)
        if loan is None:
            return  # about a connection that is gone
        connection = loan.connection
        if not connection.slot.is_current(link.index, generation):
            return
        self._end_loan(link, number)
        if kind == _BACK:
            if argument != _KEPT:
                link.copies.pop(number, None)
            connection.take_back(link.index, payload, kept=argument == _KEPT)
            return
        if argument == RefuseReason.NOT_HELD:
            self._refer(link, loan, payload)
            return
        connection.slot.take_refusal(link.index)
        link.copies.pop(number, None)
        if argument == RefuseReason.NOT_PARKED:
            self.lend(connection, loan.place, loan.head, payload)
            return
        error = OverloadedError(f"shard {link.index} has no file descriptor left, try again soon")
        connection.answer_refused(error, loan.head, payload)

    def _refer(self, link: ShardLink, loan: Loan, payload: bytes) -> None:
        """Rule 14: a shard read the body, and does not hold the session that stands there."""
        key, request = payload[:CLAIM_KEY_BYTES], payload[CLAIM_KEY_BYTES:]
        connection = loan.connection
        connection.slot.take_back(link.index, kept=True)
        try:
            found = self._holder_of(key)
            holder = found or link
            if holder.channel.is_over_limit:
                raise behind_error(holder)
        except (ShardGoneError, OverloadedError) as error:
            connection.answer_refused(error, loan.head, request)
            return
        place = Place(shard=holder.index, key=key, is_newcomer=found is None, is_final=True)
        self.lend(connection, place, loan.head, request)

    def _on_wish(self, link: ShardLink, message: Message) -> None:
        """What a shard says of itself.

        Raises:
            LocalProtocolError: A shard does not say that.
        """
        kind, key = message.kind, message.payload
        if kind == Kind.WISH_RELEASE:
            self._grant_release(link, message.slot)
        elif kind == Kind.CLAIM and len(key) == CLAIM_KEY_BYTES:
            self._grant_claim(link, key, message.generation)
        elif kind == Kind.UNCLAIM and len(key) == CLAIM_KEY_BYTES:
            if self.claims.release(key, link.index):
                link.load.close()
        elif kind == Kind.END_CLAIM and len(key) == CLAIM_KEY_BYTES:
            if self.claims.end(key, link.index):
                link.load.close()
        else:
            raise LocalProtocolError(f"message of kind {kind} from shard {link.index}")

    def _grant_claim(self, link: ShardLink, key: bytes, request: int) -> None:
        """Answer a claim; every request that is chosen for from now on sees it."""
        answer = self.claims.claim(key, link.index)
        if isinstance(answer, HeldBy):
            # It may have been given up before this was asked, by a word that is still unread.
            self.links[answer.shard].channel.read_pending()
            answer = self.claims.claim(key, link.index)
        if isinstance(answer, HeldBy):
            holder, word = answer.shard, Claimed.HELD
        else:
            link.load.open()
            holder, word = link.index, Claimed.GRANTED
        link.channel.send(Message(Kind.CLAIMED, word, holder, 0, request, b""))

    def _grant_release(self, link: ShardLink, number: int) -> None:
        """Rule 9: only the router decides, so that no LEND crosses a drop."""
        connection = link.copies.get(number)
        if connection is not None and connection.slot.drop_copy(link.index):
            self.release(number, [link.index])


def behind_error(link: ShardLink) -> OverloadedError:
    """The answer for a request whose shard does not read its messages (lending rule 15)."""
    return OverloadedError(f"shard {link.index} is behind with its messages, try again soon")


def gone_error(link: ShardLink, kind: str = "") -> ShardGoneError | McpSessionGoneError:
    """The answer for a session of a shard that died while the group goes on.

    Args:
        link: Of the shard.
        kind: Name of the session's kind; one has an answer of its own.
    """
    error = McpSessionGoneError if kind == MCP_SESSION else ShardGoneError
    return error(
        f"this session is no longer running: shard {link.index} (pid {link.pid}) that held it died"
    )


def died_error(link: ShardLink) -> ShardDiedError:
    """The answer for a request without a session that a shard left unanswered."""
    return ShardDiedError(f"shard {link.index} (pid {link.pid}) died while it served this request")


def dying_error(cause: str) -> GroupDyingError:
    """The answer of a dying group."""
    return GroupDyingError(f"the server is going down because {cause}; its sessions are lost")
