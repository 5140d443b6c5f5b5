"""Clean-up runs in order, in its budget, and to its end whatever is cancelled."""

import asyncio
import logging

import pytest

from sessions.tools.cleanup import CleanUp, wait_through
from tests.support.episodes import wait_for


async def test_the_last_callback_given_runs_first_plain_or_async():
    done: list[int] = []

    async def third() -> None:
        await asyncio.sleep(0)
        done.append(3)

    clean_up = CleanUp()
    clean_up.push(lambda: done.append(1))
    clean_up.push(lambda: done.append(2))
    clean_up.push(third)
    await clean_up.run(5.0)
    assert done == [3, 2, 1]
    await clean_up.run(5.0)
    assert done == [3, 2, 1], "a second run has nothing to do"


async def test_a_callback_that_another_one_adds_runs_too():
    done: list[str] = []
    clean_up = CleanUp()
    clean_up.push(lambda: done.append("first given"))
    clean_up.push(lambda: clean_up.push(lambda: done.append("added")))
    await clean_up.run(5.0)
    assert done == ["added", "first given"]


@pytest.mark.parametrize("kind", ["plain", "async", "cancels itself"])
async def test_a_callback_that_fails_stops_none_of_the_others(
    kind: str, caplog: pytest.LogCaptureFixture
):
    done: list[str] = []

    def plain() -> None:
        raise ValueError("broken")

    async def later() -> None:
        await asyncio.sleep(0)
        raise ValueError("broken") if kind == "async" else asyncio.CancelledError

    clean_up = CleanUp()
    clean_up.push(lambda: done.append("other"))
    clean_up.push(plain if kind == "plain" else later)
    await clean_up.run(5.0)
    assert done == ["other"]
    (record,) = caplog.records
    assert record.levelno == logging.ERROR


@pytest.mark.parametrize("heeds", [True, False])
async def test_one_budget_is_for_all_and_those_behind_it_still_start(
    caplog: pytest.LogCaptureFixture,
    heeds: bool,  # noqa: FBT001 - a parameter of the test
):
    done: list[str] = []
    released = asyncio.Event()

    async def stuck() -> None:
        done.append("stuck")
        try:
            await released.wait()
        except asyncio.CancelledError:
            done.append("cancelled")
            if heeds:
                raise
            await released.wait()

    async def behind() -> None:
        done.append("behind")
        await released.wait()
        done.append("never")

    clean_up = CleanUp()
    clean_up.push(behind)
    clean_up.push(stuck)
    await clean_up.run(0.05)
    await wait_for(lambda: "cancelled" in done)
    assert done[:1] == ["stuck"]
    assert "behind" in done
    assert "never" not in done
    assert [record.levelno for record in caplog.records] == [logging.ERROR] * 2
    released.set()
    await asyncio.sleep(0)


async def test_no_cancellation_reaches_a_clean_up():
    steps: list[str] = []
    go_on = asyncio.Event()

    async def slow() -> None:
        steps.append("begun")
        await go_on.wait()
        steps.append("done")

    clean_up = CleanUp()
    clean_up.push(lambda: steps.append("last"))
    clean_up.push(slow)
    task = asyncio.create_task(clean_up.run(5.0))
    await wait_for(lambda: bool(steps))
    for _ in range(3):
        task.cancel()
        await asyncio.sleep(0)
    assert not task.done()
    go_on.set()
    await asyncio.wait((task,))
    assert steps == ["begun", "done", "last"]
    assert task.cancelled(), "the cancellation passes on, only later"


async def test_waiting_through_leaves_the_tasks_own_end_to_its_owner():
    async def fail() -> None:
        raise ValueError

    task = asyncio.create_task(fail())
    await wait_through(task)
    assert isinstance(task.exception(), ValueError)


async def test_who_comes_behind_a_spent_budget_gets_its_start_and_no_budget_of_its_own():
    turns: list[int] = []

    async def stuck() -> None:
        await asyncio.Event().wait()

    async def behind() -> None:
        for turn in range(100):
            turns.append(turn)
            await asyncio.sleep(0)

    clean_up = CleanUp()
    clean_up.push(behind)
    clean_up.push(stuck)
    await clean_up.run(0.5)
    await asyncio.sleep(0)
    assert 1 <= len(turns) < 100
