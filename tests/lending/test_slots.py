"""The slot machine: pairs that do not exist, late words, deaths, numbers that are reused."""

from __future__ import annotations

import itertools

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from sessions.errors.unseen import LocalProtocolError
from sessions.lending.cells import CellState
from sessions.lending.slots import TRANSITIONS, Slot, SlotEvent, SlotState, SlotTable

SHARDS = 3
LAW = settings(derandomize=True, deadline=None)
UNLISTED = [
    pytest.param(state, event, id=f"{state.name}-{event.name}")
    for state, event in itertools.product(SlotState, SlotEvent)
    if (state, event) not in TRANSITIONS
]
LISTED = [
    pytest.param(state, event, after, id=f"{state.name}-{event.name}")
    for (state, event), after in TRANSITIONS.items()
]


def slot_in(state: SlotState) -> Slot:
    """A slot that came to this state as real ones do; lent means to shard 1."""
    slot = Slot(5, 0)
    if state is SlotState.LENT:
        slot.lend(1)
    elif state is SlotState.ENDING:
        slot.feed(SlotEvent.LAST_REPLY)
    elif state is SlotState.CLOSED:
        slot.close()
    assert slot.state is state
    return slot


# --- the table


@pytest.mark.parametrize(("state", "event"), UNLISTED)
def test_an_event_that_cannot_happen_is_refused_and_the_state_kept(
    state: SlotState, event: SlotEvent
) -> None:
    slot = slot_in(state)
    with pytest.raises(LocalProtocolError, match=f"{event.name} in state {state.name}"):
        slot.feed(event)
    assert slot.state is state
    assert slot.is_lent_to(1) is (state is SlotState.LENT)


@pytest.mark.parametrize(("state", "event", "after"), LISTED)
def test_an_event_of_the_table_moves_the_slot(
    state: SlotState, event: SlotEvent, after: SlotState
) -> None:
    slot = slot_in(state)
    assert slot.feed(event) is after
    assert slot.state is after
    if after is not SlotState.LENT:
        assert not any(slot.is_lent_to(shard) for shard in range(SHARDS))


@LAW
@given(st.lists(st.sampled_from(SlotEvent), max_size=12))
def test_a_closed_slot_never_reopens(events: list[SlotEvent]) -> None:
    slot = slot_in(SlotState.CLOSED)
    for event in events:
        with pytest.raises(LocalProtocolError):
            slot.feed(event)
    assert slot.state is SlotState.CLOSED
    with pytest.raises(LocalProtocolError):
        slot.lend(0)


@pytest.mark.parametrize("state", [SlotState.LENT, SlotState.ENDING, SlotState.CLOSED])
def test_a_loan_that_is_refused_leaves_generation_and_copies_alone(state: SlotState) -> None:
    slot = slot_in(state)
    before = slot.generation, slot.parked_shards
    with pytest.raises(LocalProtocolError):
        slot.lend(2)
    assert (slot.generation, slot.parked_shards) == before


# --- loans and words about them


def test_only_the_first_loan_to_a_shard_needs_the_descriptor() -> None:
    slot = Slot(0, 0)
    needs = []
    for shard in (1, 0, 1, 0):
        needs.append(slot.lend(shard))
        slot.take_back(shard, kept=True)
    assert needs == [True, True, False, False]
    assert slot.parked_shards == [0, 1]


def test_a_loan_that_came_back_lost_ends_the_connection_and_frees_that_copy_alone() -> None:
    slot = Slot(0, 0)
    slot.lend(0)
    slot.take_back(0, kept=True)
    slot.lend(2)
    assert slot.take_back(2, kept=False) is SlotState.ENDING
    assert slot.parked_shards == [0]


def test_a_refused_loan_needs_the_descriptor_next_time() -> None:
    slot = Slot(0, 0)
    slot.lend(1)
    slot.take_back(1, kept=True)
    assert not slot.lend(1)
    slot.take_refusal(1)
    assert slot.state is SlotState.HEAD
    assert slot.parked_shards == []
    assert slot.lend(1)


def test_a_word_is_current_only_from_the_holder_about_its_loan() -> None:
    slot = Slot(0, 6)
    assert not slot.is_current(1, 6)
    slot.lend(1)
    assert slot.is_current(1, 7)
    assert not slot.is_current(1, 6)
    assert not slot.is_current(1, 8)
    assert not slot.is_current(0, 7)
    slot.take_back(1, kept=True)
    assert not slot.is_current(1, 7)


def test_a_copy_can_be_dropped_while_it_is_parked_and_only_then() -> None:
    slot = Slot(0, 0)
    assert not slot.drop_copy(1)
    slot.lend(1)
    assert not slot.drop_copy(1), "it is lent"
    assert slot.parked_shards == [1]
    slot.take_back(1, kept=True)
    slot.lend(2)
    assert slot.drop_copy(1), "another shard's loan does not matter"
    assert not slot.drop_copy(1)
    assert slot.parked_shards == [2]
    slot.take_back(2, kept=True)
    assert slot.lend(1), "the descriptor goes again"


def test_closing_tells_every_holder_once() -> None:
    slot = Slot(0, 0)
    for shard in (2, 0):
        slot.lend(shard)
        slot.take_back(shard, kept=True)
    assert slot.close() == [0, 2]
    assert slot.parked_shards == []


def test_a_slot_can_close_while_it_is_lent() -> None:
    slot = slot_in(SlotState.LENT)
    assert slot.close() == [1]
    assert not slot.is_current(1, 1)


# --- deaths


@pytest.mark.parametrize(
    ("cell", "event", "after"),
    [
        (CellState.AWAITING, SlotEvent.DIED_AWAITING, SlotState.HEAD),
        (CellState.REPLYING, SlotEvent.DIED_REPLYING, SlotState.ENDING),
        (CellState.COMPLETE, SlotEvent.DIED_COMPLETE, SlotState.HEAD),
    ],
)
def test_a_death_is_judged_by_the_state_cell(
    cell: CellState, event: SlotEvent, after: SlotState
) -> None:
    slot = slot_in(SlotState.LENT)
    assert slot.judge_death(1, cell) is event
    assert slot.state is after
    assert slot.parked_shards == []
    assert not slot.is_current(1, 1)


@pytest.mark.parametrize("cell", CellState)
def test_the_death_of_another_shard_leaves_a_loan_alone(cell: CellState) -> None:
    slot = Slot(0, 0)
    slot.lend(0)
    slot.take_back(0, kept=True)
    slot.lend(1)
    assert slot.judge_death(0, cell) is None
    assert slot.is_current(1, 2)
    assert slot.parked_shards == [1]


@pytest.mark.parametrize("state", [SlotState.HEAD, SlotState.ENDING, SlotState.CLOSED])
@pytest.mark.parametrize("cell", CellState)
def test_a_death_moves_no_slot_that_is_not_lent(state: SlotState, cell: CellState) -> None:
    slot = slot_in(state)
    assert slot.judge_death(1, cell) is None
    assert slot.state is state


# --- numbers


def test_a_table_hands_out_each_number_once_and_then_none() -> None:
    table = SlotTable(3)
    slots = []
    while table.has_free:
        slots.append(table.take())
    assert [slot.number for slot in slots] == [0, 1, 2]
    with pytest.raises(IndexError):
        table.take()


def test_a_number_that_is_given_back_can_be_taken_again() -> None:
    table = SlotTable(1)
    slot = table.take()
    assert not table.has_free
    slot.close()
    table.give_back(slot)
    assert table.take().number == slot.number


def test_generations_go_on_where_the_number_stopped() -> None:
    table = SlotTable(2)
    first, other = table.take(), table.take()
    for _ in range(3):
        first.lend(0)
        first.take_back(0, kept=True)
    first.close()
    table.give_back(first)
    again = table.take()
    assert (again.number, again.generation) == (first.number, 3)
    assert again.lend(0)  # the copies of the last connection are no copies of this one
    assert again.generation == 4
    assert other.generation == 0


class SlotsModel(RuleBasedStateMachine):
    """A front's slots beside a plain model of who has what, over deaths, refusals and reuse."""

    def __init__(self) -> None:
        super().__init__()
        self.table = SlotTable(2)
        self.slots: dict[int, Slot] = {}
        self.copies: dict[int, set[int]] = {}
        self.lent: dict[int, int] = {}
        self.seen: set[tuple[int, int]] = set()

    @initialize()
    def accept_first(self) -> None:
        self.accept()

    @precondition(lambda self: self.table.has_free)
    @rule()
    def accept(self) -> None:
        slot = self.table.take()
        assert slot.number not in self.slots
        self.slots[slot.number] = slot
        self.copies[slot.number] = set()

    def slots_in(self, *states: SlotState) -> list[Slot]:
        return [slot for slot in self.slots.values() if slot.state in states]

    def pick(self, data: st.DataObject, *states: SlotState) -> Slot | None:
        found = self.slots_in(*states)
        return data.draw(st.sampled_from(found)) if found else None

    @rule(data=st.data(), shard=st.integers(0, SHARDS - 1))
    def lend(self, data: st.DataObject, shard: int) -> None:
        slot = self.pick(data, SlotState.HEAD)
        if slot is None:
            return
        assert slot.lend(shard) is (shard not in self.copies[slot.number])
        loan = slot.number, slot.generation
        assert loan not in self.seen, "a generation came twice"
        self.seen.add(loan)
        self.copies[slot.number].add(shard)
        self.lent[slot.number] = shard

    @rule(data=st.data(), kept=st.booleans())
    def take_back(self, data: st.DataObject, *, kept: bool) -> None:
        slot = self.pick(data, SlotState.LENT)
        if slot is None:
            return
        shard = self.lent.pop(slot.number)
        assert slot.take_back(shard, kept=kept) is (SlotState.HEAD if kept else SlotState.ENDING)
        if not kept:
            self.copies[slot.number].discard(shard)

    @rule(data=st.data())
    def refuse(self, data: st.DataObject) -> None:
        slot = self.pick(data, SlotState.LENT)
        if slot is None:
            return
        shard = self.lent.pop(slot.number)
        slot.take_refusal(shard)
        self.copies[slot.number].discard(shard)

    @rule(data=st.data(), shard=st.integers(0, SHARDS - 1))
    def drop(self, data: st.DataObject, shard: int) -> None:
        slot = self.pick(data, *SlotState)
        if slot is None:
            return
        is_parked = shard in self.copies[slot.number] and self.lent.get(slot.number) != shard
        assert slot.drop_copy(shard) is is_parked
        if is_parked:
            self.copies[slot.number].discard(shard)

    @rule(shard=st.integers(0, SHARDS - 1), cell=st.sampled_from(CellState))
    def die(self, shard: int, cell: CellState) -> None:
        for slot in self.slots.values():
            event = slot.judge_death(shard, cell)
            assert (event is not None) is (self.lent.get(slot.number) == shard)
            self.copies[slot.number].discard(shard)
            if event is not None:
                del self.lent[slot.number]

    @rule(data=st.data())
    def end(self, data: st.DataObject) -> None:
        slot = self.pick(data, SlotState.HEAD)
        if slot is not None:
            slot.feed(SlotEvent.LAST_REPLY)

    @rule(data=st.data())
    def close(self, data: st.DataObject) -> None:
        slot = self.pick(data, SlotState.HEAD, SlotState.LENT, SlotState.ENDING)
        if slot is None:
            return
        assert slot.close() == sorted(self.copies.pop(slot.number))
        self.lent.pop(slot.number, None)
        self.table.give_back(self.slots.pop(slot.number))

    @invariant()
    def slots_agree_with_the_model(self) -> None:
        assert self.table.taken_count == len(self.slots)
        for number, slot in self.slots.items():
            assert slot.parked_shards == sorted(self.copies[number])
            holder = self.lent.get(number)
            assert (slot.state is SlotState.LENT) is (holder is not None)
            for shard in range(SHARDS):
                assert slot.is_lent_to(shard) is (shard == holder)
                assert slot.is_current(shard, slot.generation) is (shard == holder)


TestSlotsModel = SlotsModel.TestCase
TestSlotsModel.settings = settings(derandomize=True, deadline=None, max_examples=60)
