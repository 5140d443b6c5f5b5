"""The table of claims: its rules one by one, and against a model."""

from __future__ import annotations

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from sessions.router.claims import DEAD_LIMIT, ClaimTable, Granted, HeldBy, Holder

KEY, OTHER = b"k" * 16, b"o" * 16
LIVE, DEAD = True, False


@pytest.fixture
def table() -> ClaimTable:
    """One in which shard 1 holds KEY."""
    made = ClaimTable()
    assert made.claim(KEY, 1) == Granted()
    return made


def test_a_claim_is_found_with_its_holder_and_others_are_not(table: ClaimTable) -> None:
    assert table.find(KEY) == Holder(1, LIVE)
    assert table.find(OTHER) is None
    assert len(table) == 1


@pytest.mark.parametrize("claimant", [1, 2])
def test_a_second_claim_is_refused_and_the_first_survives(table: ClaimTable, claimant: int) -> None:
    assert table.claim(KEY, claimant) == HeldBy(1)
    assert table.find(KEY) == Holder(1, LIVE)


def test_only_the_holder_releases(table: ClaimTable) -> None:
    assert not table.release(KEY, 2)
    assert not table.release(OTHER, 1)
    assert table.find(KEY) == Holder(1, LIVE)
    assert table.release(KEY, 1)
    assert not table.release(KEY, 1)
    assert table.find(KEY) is None
    assert len(table) == 0


def test_what_is_over_stays_claimed_and_counts_no_more(table: ClaimTable) -> None:
    assert not table.end(KEY, 2)
    assert not table.end(OTHER, 1)
    assert table.end(KEY, 1)
    assert not table.end(KEY, 1), "it counts once"
    assert (table.find(KEY), len(table)) == (Holder(1, LIVE), 0)
    assert table.claim(KEY, 2) == HeldBy(1)
    assert not table.release(KEY, 1), "it did not count"
    assert (table.find(KEY), len(table)) == (None, 0)
    assert table.claim(KEY, 2) == Granted()
    assert len(table) == 1
    assert table.release(KEY, 2)


def test_what_was_over_is_dead_with_its_shard(table: ClaimTable) -> None:
    table.end(KEY, 1)
    table.bury(1)
    assert (table.find(KEY), len(table)) == (Holder(1, DEAD), 0)


def test_what_a_dead_shard_held_stays_known_as_dead(table: ClaimTable) -> None:
    table.claim(OTHER, 2)
    table.bury(1)
    assert table.find(KEY) == Holder(1, DEAD)
    assert table.find(OTHER) == Holder(2, LIVE)
    assert len(table) == 1
    table.release(KEY, 1)
    assert table.find(KEY) == Holder(1, DEAD)


def test_a_dead_claim_can_be_taken_and_then_be_released_for_good(table: ClaimTable) -> None:
    table.bury(1)
    assert table.claim(KEY, 2) == Granted()
    assert table.find(KEY) == Holder(2, LIVE)
    table.release(KEY, 2)
    assert table.find(KEY) is None


def test_a_reserved_key_is_found_where_it_may_be_claimed(table: ClaimTable) -> None:
    table.reserve(OTHER, 2)
    assert table.find(OTHER) == Holder(2, LIVE)
    assert table.claim(OTHER, 3) == HeldBy(2)
    assert len(table) == 1
    assert table.claim(OTHER, 2) == Granted()
    assert table.claim(OTHER, 2) == HeldBy(2)
    table.release(OTHER, 2)
    assert table.find(OTHER) == Holder(2, LIVE), "still reserved"
    table.unreserve(OTHER, 2)
    assert table.find(OTHER) is None


def test_a_key_is_reserved_as_often_as_it_was_and_was_not_given_back(table: ClaimTable) -> None:
    table.reserve(OTHER, 2)
    table.reserve(OTHER, 2)
    table.unreserve(OTHER, 2)
    table.unreserve(OTHER, 3)
    assert table.claim(OTHER, 3) == HeldBy(2)
    table.unreserve(OTHER, 2)
    assert table.claim(OTHER, 3) == Granted()
    table.unreserve(OTHER, 2)
    assert table.find(OTHER) == Holder(3, LIVE)


def test_a_key_is_reserved_for_one_shard_alone(table: ClaimTable) -> None:
    table.reserve(OTHER, 2)
    table.reserve(OTHER, 3)
    assert table.find(OTHER) == Holder(2, LIVE)
    table.unreserve(OTHER, 2)
    assert table.find(OTHER) is None


def test_nothing_is_reserved_for_the_dead(table: ClaimTable) -> None:
    table.reserve(OTHER, 1)
    table.reserve(b"x" * 16, 2)
    table.bury(1)
    assert table.find(OTHER) is None
    assert table.find(b"x" * 16) == Holder(2, LIVE)
    table.reserve(OTHER, 2)
    table.unreserve(OTHER, 1)
    assert table.find(OTHER) == Holder(2, LIVE)


def test_a_dead_claim_stays_dead_when_what_was_reserved_is_given_back(table: ClaimTable) -> None:
    table.bury(1)
    table.reserve(KEY, 2)
    assert table.find(KEY) == Holder(2, LIVE)
    table.unreserve(KEY, 2)
    assert table.find(KEY) == Holder(1, DEAD)


def test_the_oldest_dead_claims_are_forgotten() -> None:
    table = ClaimTable(dead_limit=2)
    for number in range(3):
        table.claim(bytes([number]) * 16, number)
    for shard in (1, 0, 2):
        table.bury(shard)
    found = [table.find(bytes([number]) * 16) for number in range(3)]
    assert found == [Holder(0, DEAD), None, Holder(2, DEAD)]


def test_live_claims_have_no_limit_of_the_dead() -> None:
    table = ClaimTable(dead_limit=1)
    for number in range(100):
        table.claim(number.to_bytes(16), 0)
    assert len(table) == 100
    assert DEAD_LIMIT > 1000


class Claiming(RuleBasedStateMachine):
    """Shards claim, release, reserve and die; lists of what happened say what must be found."""

    LIMIT = 3
    keys = st.integers(0, 5).map(lambda number: bytes([number]) * 16)
    shards = st.integers(0, 3)

    def __init__(self) -> None:
        super().__init__()
        self.table = ClaimTable(self.LIMIT)
        self.holders: list[tuple[bytes, int, bool]] = []  # key, shard, is live
        self.dead: set[int] = set()
        self.reserved: list[tuple[bytes, int]] = []

    def holder(self, key: bytes) -> Holder | None:
        for found, shard in self.reserved:
            if found == key:
                return Holder(shard, LIVE)
        for found, shard, is_live in self.holders:
            if found == key:
                return Holder(shard, is_live)
        return None

    @rule(key=keys, shard=shards)
    def claim(self, key: bytes, shard: int) -> None:
        if shard in self.dead:
            return
        before = self.holder(key)
        is_held = any(entry[0] == key and entry[2] for entry in self.holders)
        answer = self.table.claim(key, shard)
        if before is not None and before.is_live and (is_held or before.shard != shard):
            assert answer == HeldBy(before.shard)
            return
        assert answer == Granted()
        self.holders = [entry for entry in self.holders if entry[0] != key]
        self.holders.append((key, shard, LIVE))

    @rule(key=keys, shard=shards)
    def release(self, key: bytes, shard: int) -> None:
        self.table.release(key, shard)
        self.holders = [entry for entry in self.holders if entry != (key, shard, LIVE)]

    @rule(key=keys, shard=shards)
    def reserve(self, key: bytes, shard: int) -> None:
        """As the router does: where the key is found, or anywhere if it is not."""
        holder = self.holder(key)
        if shard in self.dead or (holder is not None and not holder.is_live):
            return
        shard = shard if holder is None else holder.shard
        self.table.reserve(key, shard)
        self.reserved.append((key, shard))

    @rule(key=keys, shard=shards)
    def unreserve(self, key: bytes, shard: int) -> None:
        self.table.unreserve(key, shard)
        if (key, shard) in self.reserved:
            self.reserved.remove((key, shard))

    @rule(shard=st.integers(1, 3))
    def die(self, shard: int) -> None:
        self.table.bury(shard)
        self.dead.add(shard)
        self.reserved = [entry for entry in self.reserved if entry[1] != shard]
        killed = [
            (key, shard, DEAD) for key, holder, live in self.holders if live and holder == shard
        ]
        self.holders = [e for e in self.holders if not (e[2] and e[1] == shard)] + killed
        dead = [entry for entry in self.holders if not entry[2]]
        for entry in dead[: max(0, len(dead) - self.LIMIT)]:
            self.holders.remove(entry)

    @invariant()
    def the_table_says_what_happened(self) -> None:
        for number in range(6):
            key = bytes([number]) * 16
            assert self.table.find(key) == self.holder(key)
        assert len(self.table) == sum(live for _, _, live in self.holders)
        shards_of: dict[bytes, set[int]] = {}
        for key, shard in self.reserved:
            shards_of.setdefault(key, set()).add(shard)
        assert all(len(shards) == 1 for shards in shards_of.values())


TestClaiming = Claiming.TestCase
TestClaiming.settings = settings(derandomize=True, deadline=None, max_examples=150)
