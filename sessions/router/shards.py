"""The router's view of its shards: one link per shard, and which of them to choose.

A `ShardLink` has the channel, the pidfd and the exchanges that the shard has now. `least_loaded`
spreads requests that name no session, by the load of each.

Spec: docs/routing.md#placement
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from sessions.lending.channel import Channel
from sessions.lending.connection import Connection
from sessions.lending.place import Place
from sessions.router.load import Load
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
        load: What placement compares.
        place: Of a request that it serves without more ado.
        newcomers_place: Of one that names no session.
    """

    index: int
    pid: int
    pidfd: int
    channel: Channel
    loans: dict[int, Loan] = field(default_factory=dict)
    copies: dict[int, Connection] = field(default_factory=dict)
    is_alive: bool = True
    load: Load = field(default_factory=Load)
    place: Place = field(init=False)
    newcomers_place: Place = field(init=False)

    def __post_init__(self) -> None:
        """Make what every choice of this shard shares."""
        self.place = Place(shard=self.index)
        self.newcomers_place = Place(shard=self.index, is_newcomer=True)


def least_loaded(links: Sequence[ShardLink]) -> ShardLink:
    """The link with the smallest load; among equals the one that was chosen least recently."""
    return min(links, key=lambda link: (link.load.count, link.load.last_turn))
