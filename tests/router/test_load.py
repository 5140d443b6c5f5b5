"""The load of a shard: step by step, and against a model of what shards really have."""

from __future__ import annotations

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from sessions.router.load import Load


def test_a_request_counts_until_it_ends() -> None:
    load = Load()
    load.arrive()
    load.arrive()
    assert load.count == 2
    load.leave()
    assert load.count == 1


def test_a_session_counts_once_from_its_request_to_its_release() -> None:
    load = Load()
    load.arrive()
    load.open()
    assert load.count == 1
    load.leave()
    assert load.count == 1, "the claim stays"
    load.close()
    assert load.count == 0


def test_a_session_that_no_request_opened_counts() -> None:
    load = Load()
    load.open()
    load.open()
    assert load.count == 2


def test_what_ended_counts_until_the_board_can_have_it() -> None:
    load = Load()
    load.refresh(5, as_of=10.0)
    load.note_end(10.5)
    load.note_end(11.5)
    assert load.count == 7
    load.refresh(6, as_of=11.0)
    assert load.count == 7
    load.refresh(7, as_of=12.0)
    assert load.count == 7
    load.refresh(0, as_of=13.0)
    assert load.count == 0


def test_a_board_that_was_never_written_has_nothing() -> None:
    load = Load()
    load.note_end(1.0)
    load.refresh(0, as_of=float("-inf"))
    assert load.count == 1


class Placing(RuleBasedStateMachine):
    """Episodes and other requests come and go on three shards, each where the load is smallest."""

    SHARDS = 3

    def __init__(self) -> None:
        super().__init__()
        self.loads = [Load() for _ in range(self.SHARDS)]
        self.waiting: list[int] = []  # the shards of episodes that have not claimed yet
        self.claimed: list[int] = []
        self.begun = [0] * self.SHARDS
        self.has_ended = False

    @rule(count=st.integers(1, 7))
    def begin(self, count: int) -> None:
        for _ in range(count):
            shard = min(range(self.SHARDS), key=lambda index: self.loads[index].count)
            self.loads[shard].arrive()
            self.waiting.append(shard)
            self.begun[shard] += 1

    @rule(data=st.data())
    def claim(self, data: st.DataObject) -> None:
        if self.waiting:
            number = data.draw(st.integers(0, len(self.waiting) - 1))
            shard = self.waiting.pop(number)
            self.loads[shard].open()
            self.claimed.append(shard)

    @rule(data=st.data(), is_claimed=st.booleans())
    def end(self, data: st.DataObject, *, is_claimed: bool) -> None:
        among = self.claimed if is_claimed else self.waiting
        if among:
            shard = among.pop(data.draw(st.integers(0, len(among) - 1)))
            if is_claimed:
                self.loads[shard].close()
            self.loads[shard].leave()
            self.has_ended = True

    @invariant()
    def nothing_is_counted_that_is_not_there_and_no_claim_is_missed(self) -> None:
        for shard, load in enumerate(self.loads):
            claimed, waiting = self.claimed.count(shard), self.waiting.count(shard)
            assert claimed <= load.count <= claimed + waiting

    @invariant()
    def shards_are_even_while_nothing_ends(self) -> None:
        if not self.has_ended:
            assert max(self.begun) - min(self.begun) <= 1

    @invariant()
    def nothing_is_left_when_all_is_over(self) -> None:
        if not self.claimed and not self.waiting:
            assert [load.count for load in self.loads] == [0] * self.SHARDS


TestPlacing = Placing.TestCase
TestPlacing.settings = settings(derandomize=True, deadline=None, max_examples=150)
