"""Work that closing ends: who waits is told why, and the end is waited for."""

import asyncio

import pytest

from sessions.errors.episodes import EpisodeNotRunningError
from sessions.tools.open_work import OpenWork
from tests.support.episodes import wait_for


class Stage:
    """Open work, of which some is stubborn."""

    def __init__(self) -> None:
        self.work = OpenWork()
        self.begun = 0
        self.go_on = asyncio.Event()

    async def slow(self) -> str:
        self.begun += 1
        await self.go_on.wait()
        return "done"

    async def stubborn(self) -> str:
        try:
            await self.slow()
        except asyncio.CancelledError:
            await self.go_on.wait()
        return "late"

    async def begin(self, *, is_stubborn: bool = False) -> asyncio.Task[str]:
        begun = self.begun
        piece = self.stubborn() if is_stubborn else self.slow()
        task = asyncio.create_task(self.work.run(piece))
        await wait_for(lambda: self.begun > begun)
        return task


async def test_work_gives_its_result():
    stage = Stage()
    task = await stage.begin()
    stage.go_on.set()
    assert await task == "done"
    stage.work.check_open()


async def test_who_closes_says_what_is_answered():
    stage = Stage()
    task = await stage.begin()
    stage.work.close(lambda: EpisodeNotRunningError("stopped"))
    with pytest.raises(EpisodeNotRunningError, match="stopped"):
        await task
    stage.work.close(lambda: EpisodeNotRunningError("closed"))
    with pytest.raises(EpisodeNotRunningError, match="closed"):
        stage.work.check_open()
    assert not stage.work.is_open


async def test_a_waiter_that_is_cancelled_cancels_its_work_alone():
    stage = Stage()
    leaving, staying = await stage.begin(), await stage.begin()
    leaving.cancel()
    with pytest.raises(asyncio.CancelledError):
        await leaving
    stage.go_on.set()
    assert await staying == "done"


async def test_the_end_is_waited_for_and_what_is_stubborn_is_left_behind(
    caplog: pytest.LogCaptureFixture,
):
    stage = Stage()
    await stage.work.wait_ended(5.0)
    slow, stubborn = await stage.begin(), await stage.begin(is_stubborn=True)
    stage.work.close()
    await stage.work.wait_ended(0.05)
    assert "tools did not end with their episode count=1" in caplog.text
    stage.go_on.set()
    await asyncio.wait((slow, stubborn))
    assert isinstance(slow.exception(), EpisodeNotRunningError)


async def test_work_that_comes_after_the_end_is_not_begun():
    stage = Stage()
    stage.work.close()
    with pytest.raises(EpisodeNotRunningError):
        await stage.work.run(stage.slow())
    assert stage.begun == 0
