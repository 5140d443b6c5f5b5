"""The budget of turns in flight: who goes on, who waits, and that nobody waits for ever."""

from __future__ import annotations

import asyncio

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sessions.replay import budget as budget_module
from sessions.replay.budget import SMALL_BYTES, STALL_S, Holder, IngestBudget
from tests.support.waiting import wait_until_async

LIMIT = 10 * SMALL_BYTES


class Clock:
    """Time as the test tells it."""

    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


def test_below_the_limit_everybody_goes_on():
    budget = IngestBudget(LIMIT)
    holders = [budget.open() for _ in range(2)]
    assert [holder.charge(LIMIT // 2) for holder in holders] == [True, True]
    assert budget.held_bytes == budget.limit_bytes == LIMIT


def test_over_the_limit_only_the_oldest_goes_on():
    budget = IngestBudget(LIMIT)
    old, young = budget.open(), budget.open()
    assert young.charge(LIMIT // 2)
    assert old.charge(LIMIT // 2 + 1)
    assert not young.charge(0)


def test_a_reply_larger_than_the_budget_is_admitted_alone():
    budget = IngestBudget(LIMIT)
    assert budget.open().charge(5 * LIMIT)
    assert not budget.open().charge(SMALL_BYTES)


def test_a_small_reply_never_waits_and_one_byte_more_does():
    budget = IngestBudget(LIMIT)
    budget.open().charge(LIMIT)
    small = budget.open()
    assert small.charge(SMALL_BYTES - 1)
    assert not small.charge(1)


def test_one_that_stands_still_lets_the_next_pass_until_it_moves():
    clock = Clock()
    budget = IngestBudget(LIMIT, clock=clock)
    old, young = budget.open(), budget.open()
    old.charge(LIMIT)
    assert not young.charge(LIMIT)
    clock.now = STALL_S
    assert young.charge(0)
    assert old.charge(0)
    assert not young.charge(0)


def test_a_release_gives_back_all_once():
    budget = IngestBudget(LIMIT)
    holder = budget.open()
    holder.charge(LIMIT)
    for _ in range(2):
        holder.release()
        assert budget.held_bytes == 0
    holder.charge(LIMIT)
    assert budget.held_bytes == 0


async def test_who_waits_goes_on_when_there_is_room_again():
    budget = IngestBudget(LIMIT)
    old, young = budget.open(), budget.open()
    old.charge(LIMIT)
    young.charge(SMALL_BYTES)
    waiting = asyncio.create_task(young.wait_room())
    await wait_until_async(lambda: budget.waiting_count == 1, "it waits")
    old.charge(0)
    assert not waiting.done()
    old.release()
    async with asyncio.timeout(10):
        await waiting
    assert budget.waiting_count == 0


async def test_who_waits_goes_on_when_the_oldest_stalls(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(budget_module, "STALL_S", 0.05)
    budget = IngestBudget(LIMIT)
    old, young = budget.open(), budget.open()
    old.charge(LIMIT)
    young.charge(SMALL_BYTES)
    async with asyncio.timeout(10):
        await young.wait_room()


async def test_the_oldest_that_waits_is_the_one_to_go_on(monkeypatch: pytest.MonkeyPatch):
    """It was overtaken while it stood still; as one that waits it stands still no longer."""
    monkeypatch.setattr(budget_module, "STALL_S", 1000.0)
    clock = Clock()
    budget = IngestBudget(LIMIT, clock=clock)
    old, young = budget.open(), budget.open()
    old.charge(LIMIT)
    clock.now = 1000.0
    young.charge(LIMIT)
    async with asyncio.timeout(10):
        await old.wait_room()
    assert not young.charge(0), "who waited has not stood still"


async def test_who_waits_behind_one_that_is_about_to_go_on_looks_again(
    monkeypatch: pytest.MonkeyPatch,
):
    """That one may stand still afterwards, and nobody else would say so."""
    monkeypatch.setattr(budget_module, "STALL_S", 1000.0)
    clock = Clock()
    budget = IngestBudget(LIMIT, clock=clock)
    budget.open().charge(LIMIT)
    young = budget.open()
    young.charge(SMALL_BYTES)
    waiting = asyncio.create_task(young.wait_room())
    await wait_until_async(lambda: budget.waiting_count == 1, "it waits")
    clock.now = 1000.0
    assert budget.may_go_on(young)
    assert budget.stall_in_s() == 1000.0
    waiting.cancel()
    await asyncio.wait([waiting])


async def test_a_cancelled_wait_leaves_no_trace():
    budget = IngestBudget(LIMIT)
    budget.open().charge(LIMIT)
    young = budget.open()
    young.charge(SMALL_BYTES)
    waiting = asyncio.create_task(young.wait_room())
    await wait_until_async(lambda: budget.waiting_count == 1, "it waits")
    waiting.cancel()
    await asyncio.wait([waiting])
    assert budget.waiting_count == 0


STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("open"), st.just(0)),
        st.tuples(st.just("charge"), st.integers(0, 2 * LIMIT)),
        st.tuples(st.just("release"), st.just(0)),
        st.tuples(st.just("pass"), st.integers(0, 2 * int(STALL_S))),
    ),
    max_size=40,
)


@settings(derandomize=True, deadline=None, max_examples=200)
@given(STEPS, st.data())
def test_one_at_least_may_go_on_and_no_two_over_the_limit(
    steps: list[tuple[str, int]], data: st.DataObject
):
    clock = Clock()
    budget = IngestBudget(LIMIT, clock=clock)
    held: dict[Holder, tuple[int, float]] = {}  # the model: bytes, and when it moved last
    for step, size in steps:
        if step == "open":
            held[budget.open()] = (0, clock.now)
        elif step == "pass":
            clock.now += size
        elif held:
            holder = data.draw(st.sampled_from(list(held)))
            if step == "charge":
                holder.charge(size)
                held[holder] = (held[holder][0] + size, clock.now)
            else:
                holder.release()
                del held[holder]
        assert budget.held_bytes == sum(size for size, _ in held.values())
        large = [h for h, (size, _) in held.items() if size >= SMALL_BYTES]
        moving = [h for h in large if clock.now - held[h][1] < STALL_S]
        for holder in held:
            is_free = holder not in large or budget.held_bytes <= LIMIT
            assert budget.may_go_on(holder) == (is_free or moving[:1] == [holder])
