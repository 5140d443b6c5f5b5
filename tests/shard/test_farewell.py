"""The farewell: when exchanges are given up, with which words, and what the life hears of it."""

from __future__ import annotations

from pathlib import Path

import pytest

from sessions.errors.client_visible import ClientVisibleError
from sessions.shard.farewell import Farewell
from tests.support.loops import turn
from tests.support.members import CutError, FakeLife, group_of
from tests.support.waiting import wait_until_async


class FakeExchanges:
    """Notes each question, and cuts as many exchanges as a test put there."""

    def __init__(self) -> None:
        self.left = 0
        self.errors: list[ClientVisibleError] = []

    def give_up(self, error: ClientVisibleError) -> int:
        self.errors.append(error)
        cut, self.left = self.left, 0
        return cut


class Stage:
    """A farewell and what it speaks with."""

    def __init__(self, tmp_path: Path, graceful_s: int) -> None:
        group = group_of(tmp_path, graceful_s=graceful_s)
        self.life = FakeLife(group, 1)
        self.exchanges = FakeExchanges()
        self.farewell = Farewell(group.settings, self.life, self.exchanges)

    async def wait_asked(self, times: int = 1) -> None:
        await wait_until_async(lambda: len(self.exchanges.errors) >= times, "a question")


async def test_nothing_is_given_up_before_a_stop_or_within_its_time(tmp_path: Path) -> None:
    stage = Stage(tmp_path, graceful_s=60)
    await turn(20)
    stage.life.stop_requested.set()
    await turn(20)
    assert stage.exchanges.errors == []
    stage.farewell.end()
    assert not stage.life.cut


async def test_what_is_left_is_given_up_when_the_time_is_over(tmp_path: Path) -> None:
    stage = Stage(tmp_path, graceful_s=0)
    stage.life.stop_requested.set()
    await stage.wait_asked()
    assert stage.exchanges.errors[0].code == "group_stopped"
    stage.farewell.end()


async def test_a_loan_that_comes_late_is_given_up_too(tmp_path: Path) -> None:
    stage = Stage(tmp_path, graceful_s=0)
    stage.life.stop_requested.set()
    await stage.wait_asked()
    stage.exchanges.left = 1
    await stage.wait_asked(len(stage.exchanges.errors) + 1)
    assert stage.exchanges.left == 0
    with pytest.raises(CutError):
        stage.farewell.end()


async def test_a_life_ends_as_not_drained_with_the_number_of_all_that_was_cut(
    tmp_path: Path,
) -> None:
    stage = Stage(tmp_path, graceful_s=0)
    for cut in (3, 2):
        stage.exchanges.left = cut
        stage.life.stop_requested.set()
        await stage.wait_asked(len(stage.exchanges.errors) + 1)
    with pytest.raises(CutError):
        stage.farewell.end()
    assert stage.life.cut == "requests cut: 5"


async def test_nothing_is_given_up_after_its_end(tmp_path: Path) -> None:
    stage = Stage(tmp_path, graceful_s=0)
    stage.farewell.end()
    stage.life.stop_requested.set()
    await turn(20)
    assert stage.exchanges.errors == []
