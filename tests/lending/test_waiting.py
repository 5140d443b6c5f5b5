"""Waiting for a condition: at once, later, or not within the limit."""

from __future__ import annotations

import asyncio

import pytest

from sessions.lending.waiting import wait_set, wait_until


async def test_says_so_when_the_condition_holds_at_once() -> None:
    assert await wait_until(lambda: True, limit_s=0)


async def test_waits_until_the_condition_holds() -> None:
    asked: list[None] = []

    def condition() -> bool:
        asked.append(None)
        return len(asked) == 3

    assert await wait_until(condition, poll_s=0)
    assert len(asked) == 3


async def test_gives_up_when_the_limit_is_over() -> None:
    assert not await wait_until(lambda: False, limit_s=0.01, poll_s=0.001)


async def test_takes_any_true_value() -> None:
    assert await wait_until(lambda: "a cause") is True
    assert not await wait_until(lambda: "", limit_s=0)


async def test_lets_other_tasks_run_meanwhile() -> None:
    done: list[str] = []
    asyncio.get_running_loop().call_soon(done.append, "turned")
    assert await wait_until(lambda: done, poll_s=0)


async def test_passes_a_cancellation_on() -> None:
    task = asyncio.create_task(wait_until(lambda: False, poll_s=0))
    await asyncio.sleep(0)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task


async def test_passes_an_error_of_the_condition_on() -> None:
    with pytest.raises(ZeroDivisionError):
        await wait_until(lambda: 1 / 0)


async def test_an_event_is_waited_for_until_it_is_set() -> None:
    event = asyncio.Event()
    asyncio.get_running_loop().call_soon(event.set)
    assert await wait_set(event, 60)


@pytest.mark.parametrize("is_set", [True, False])
async def test_an_event_is_looked_at_without_a_limit(*, is_set: bool) -> None:
    event = asyncio.Event()
    if is_set:
        event.set()
    assert await wait_set(event, 0) is is_set


async def test_an_event_that_nobody_sets_is_given_up_when_the_limit_is_over() -> None:
    assert not await wait_set(asyncio.Event(), 0.01)
