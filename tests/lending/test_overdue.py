"""When a stop is overdue, and what those are told that it overtook."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from sessions.lending.overdue import wait_overdue
from tests.support.loops import turn
from tests.support.members import FakeLife, group_of


class Stage:
    """Somebody who waits, and the life that tells of the stop."""

    def __init__(self, tmp_path: Path, graceful_s: int, drain_delay_s: float = 0.0) -> None:
        group = group_of(tmp_path, graceful_s=graceful_s, drain_delay_s=drain_delay_s)
        self.life = FakeLife(group, 1)
        self.waiting = asyncio.create_task(wait_overdue(group.settings, self.life))


async def test_nothing_is_overdue_before_a_stop_or_within_its_time(tmp_path: Path) -> None:
    stage = Stage(tmp_path, graceful_s=60)
    await turn(20)
    stage.life.stop_requested.set()
    await turn(20)
    assert not stage.waiting.done()
    stage.waiting.cancel()


@pytest.mark.parametrize(("graceful_s", "drain_delay_s"), [(60, 0.0), (0, 60.0)])
async def test_the_time_is_the_drain_delay_and_the_graceful_limit(
    tmp_path: Path, graceful_s: int, drain_delay_s: float
) -> None:
    stage = Stage(tmp_path, graceful_s, drain_delay_s)
    stage.life.stop_requested.set()
    await turn(20)
    assert not stage.waiting.done()
    stage.waiting.cancel()


async def test_what_outlives_the_time_is_told_how_long_it_was(tmp_path: Path) -> None:
    stage = Stage(tmp_path, graceful_s=0, drain_delay_s=0.01)
    stage.life.stop_requested.set()
    error = await stage.waiting
    assert (error.status, error.should_retry, error.code) == (503, False, "group_stopped")
    assert error.message.endswith("told to stop, and 0 s for what was in flight are over")


async def test_a_process_that_must_hurry_is_overdue_at_once(tmp_path: Path) -> None:
    stage = Stage(tmp_path, graceful_s=60, drain_delay_s=60)
    stage.life.stop_requested.set()
    await turn()
    stage.life.hurry_requested.set()
    assert (await stage.waiting).message.endswith("it was told to stop at once")
