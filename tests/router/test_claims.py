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
    table.release(KEY, 2)
    table.release(OTHER, 1)
    assert table.find(KEY) == Holder(1, LIVE)
    table.release(KEY, 1)
    assert table.find(KEY) is None
    assert len(table) == 0


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
    """Shards claim, release and die; a list of what happened says what must be found."""

    LIMIT = 3
    keys = st.integers(0, 5).map(lambda number: bytes([number]) * 16)
    shards = st.integers(0, 3)

    def __init__(self) -> None:
        super().__init__()
        self.table = ClaimTable(self.LIMIT)
        self.holders: list[tuple[bytes, int, bool]] = []  # key, shard, is live
        self.dead: set[int] = set()

    def holder(self, key: bytes) -> Holder | None:
        for found, shard, is_live in self.holders:
            if found == key:
                return Holder(shard, is_live)
        return None

    @rule(key=keys, shard=shards)
    def claim(self, key: bytes, shard: int) -> None:
        if shard in self.dead:
            return
        before = self.holder(key)
        answer = self.table.claim(key, shard)
        if before is not None and before.is_live:
            assert answer == HeldBy(before.shard)
            return
        assert answer == Granted()
        self.holders = [entry for entry in self.holders if entry[0] != key]
        self.holders.append((key, shard, LIVE))

    @rule(key=keys, shard=shards)
    def release(self, key: bytes, shard: int) -> None:
        self.table.release(key, shard)
        self.holders = [entry for entry in self.holders if entry != (key, shard, LIVE)]

    @rule(shard=st.integers(1, 3))
    def die(self, shard: int) -> None:
        self.table.bury(shard)
        self.dead.add(shard)
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


TestClaiming = Claiming.TestCase
TestClaiming.settings = settings(derandomize=True, deadline=None, max_examples=150)
