"""The router's view of its shards: one link per shard, and which of them to choose.

A `ShardLink` has the channel, the pidfd and the exchanges that the shard has now. `least_loaded`
spreads requests that name no session: by open sessions as the board tells them, and what was sent
since, for a board that is up to a second old.

Spec: docs/architecture.md#router
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from sessions.lending.channel import Channel
from sessions.lending.connection import Connection
from sessions.lending.place import Place
from sessions.wire.head import Head


@dataclass(slots=True, kw_only=True)
class Loan:
    """An exchange that a shard has: whose it is, its place and its head, to repeat or answer it."""

    connection: Connection
    place: Place
    head: Head


@dataclass(slots=True, kw_only=True)
class ShardLink:
    """One shard that said HELLO.

    Attributes:
        index: Of the shard.
        pid: From the peer credentials of the channel.
        pidfd: Readable when the shard is dead; owned by the link.
        channel: To it.
        loans: By slot number.
        is_alive: Until its pidfd says otherwise.
        copies: Connections that were lent there and may be parked there, by slot number.
        sessions: Open sessions as the board told at the last refresh.
        newcomers: Requests without a session sent there since.
        place: Of a request that it serves without more ado.
    """

    index: int
    pid: int
    pidfd: int
    channel: Channel
    loans: dict[int, Loan] = field(default_factory=dict)
    copies: dict[int, Connection] = field(default_factory=dict)
    is_alive: bool = True
    sessions: int = 0
    newcomers: int = 0
    place: Place = field(init=False)

    def __post_init__(self) -> None:
        """Make what every choice of this shard shares."""
        self.place = Place(shard=self.index)


def least_loaded(links: Sequence[ShardLink]) -> ShardLink:
    """The link with the fewest sessions and newcomers, the lowest index among equals."""
    return min(links, key=lambda link: link.sessions + link.newcomers)
