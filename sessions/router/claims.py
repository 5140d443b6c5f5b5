"""The table of claims: which shard holds which claimed session.

Shards fill it over their channels. A claim is taken once, and only its holder releases it. While a
shard serves requests that may open the session they name, its key is reserved: such requests find
that shard, and no other may claim it. A shard may keep the claim of what is over, so that what is
late finds it there. What a dead shard held stays known as dead, so that its
sessions are told from those that ended; the oldest of these are forgotten, and a dead claim may be
taken again. Pure: it knows no channel.

Spec: docs/lending.md#claims
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, NamedTuple

DEAD_LIMIT: Final = 65536  # a guess: many times the episodes that one shard runs; 9 MiB


@dataclass(frozen=True, slots=True)
class Granted:
    """The claim is the claimant's."""


@dataclass(frozen=True, slots=True)
class HeldBy:
    """Somebody holds the claim, and keeps it.

    Attributes:
        shard: Its index; the claimant's own if it asks twice, and that for which it is reserved.
    """

    shard: int


class Holder(NamedTuple):
    """Who holds a claim.

    Attributes:
        shard: Its index.
        is_live: Whether the shard serves; else it died with the claim.
    """

    shard: int
    is_live: bool


class ClaimTable:
    """Keys to holders; see the module docstring."""

    def __init__(self, dead_limit: int = DEAD_LIMIT) -> None:
        """Hold nothing.

        Args:
            dead_limit: How many claims of dead shards stay known.
        """
        self._live: dict[bytes, int] = {}
        self._dead: dict[bytes, int] = {}  # oldest first
        self._ended: set[bytes] = set()  # of the live ones: only what is late comes for them
        self._reserved: dict[bytes, tuple[int, int]] = {}  # the shard, and how often
        self._dead_limit = dead_limit

    def __len__(self) -> int:
        """Live claims of what is not over."""
        return len(self._live) - len(self._ended)

    def claim(self, key: bytes, shard: int) -> Granted | HeldBy:
        """Take a claim for a live shard, unless a live one holds it or another has it reserved."""
        holder = self._live.get(key)
        if holder is not None:
            return HeldBy(holder)
        reserved = self._reserved.get(key)
        if reserved is not None and reserved[0] != shard:
            return HeldBy(reserved[0])
        self._dead.pop(key, None)
        self._live[key] = shard
        return Granted()

    def release(self, key: bytes, shard: int) -> bool:
        """Drop a claim if this shard holds it; whether it did, and it was not over."""
        if self._live.get(key) != shard:
            return False
        del self._live[key]
        is_over = key in self._ended
        self._ended.discard(key)
        return not is_over

    def end(self, key: bytes, shard: int) -> bool:
        """What this shard has claimed is over, and stays claimed; whether it was not, until now."""
        if self._live.get(key) != shard or key in self._ended:
            return False
        self._ended.add(key)
        return True

    def reserve(self, key: bytes, shard: int) -> None:
        """Keep a key for a shard that `find` gave, or for any if it gave none, once more."""
        holder, count = self._reserved.get(key, (shard, 0))
        if holder == shard:
            self._reserved[key] = shard, count + 1

    def unreserve(self, key: bytes, shard: int) -> None:
        """Take one `reserve` back; what is not reserved for this shard is ignored."""
        holder, count = self._reserved.get(key, (shard, 0))
        if holder != shard:
            return
        if count > 1:
            self._reserved[key] = shard, count - 1
        else:
            self._reserved.pop(key, None)

    def bury(self, shard: int) -> None:
        """A shard died: its claims are dead from now on, and nothing is reserved for it."""
        self._reserved = {key: kept for key, kept in self._reserved.items() if kept[0] != shard}
        for key in [key for key, holder in self._live.items() if holder == shard]:
            del self._live[key]
            self._ended.discard(key)
            self._dead[key] = shard
        while len(self._dead) > self._dead_limit:
            del self._dead[next(iter(self._dead))]

    def find(self, key: bytes) -> Holder | None:
        """Who holds a claim or has it reserved, or None if nobody does that is known."""
        shard = self._live.get(key)
        if shard is None and key in self._reserved:
            shard = self._reserved[key][0]
        if shard is not None:
            return Holder(shard, is_live=True)
        shard = self._dead.get(key)
        return None if shard is None else Holder(shard, is_live=False)
