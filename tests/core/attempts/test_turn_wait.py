import asyncio

import pytest

from sessions.core.attempts.shared_turn import SharedTurn
from sessions.core.attempts.turn_reply import TurnReply
from sessions.core.attempts.turn_wait import TurnWait
from sessions.errors.engine import EngineTimeoutError
from sessions.errors.group import NotReadyError
from tests.support.turn_outcomes import turn_reply

REPLY = turn_reply()


class Turn:
    """A turn that ends when the test says so, and its client."""

    def __init__(self, error: Exception | None = None) -> None:
        self.end = asyncio.Event()
        self.gone = asyncio.Event()
        self._error = error
        self.task = asyncio.create_task(self._run())
        self.shared = SharedTurn(self.task)

    async def _run(self) -> TurnReply:
        await self.end.wait()
        if self._error is not None:
            raise self._error
        return REPLY

    async def wait_gone(self) -> None:
        await self.gone.wait()


async def test_waiting_ends_with_the_turn():
    turn = Turn()
    async with TurnWait(turn.shared, None) as waiting:
        assert not waiting.is_done
        turn.end.set()
        assert await waiting.wait()
        assert waiting.is_done
        assert waiting.result() is REPLY


async def test_waiting_ends_when_the_time_is_over():
    turn = Turn()
    async with TurnWait(turn.shared, None) as waiting:
        assert await waiting.wait(0.001)
        assert not waiting.is_done
    turn.end.set()
    await turn.task


async def test_a_client_that_is_gone_takes_its_turn_along_when_it_is_watched():
    turn = Turn()
    turn.gone.set()
    async with TurnWait(turn.shared, turn.wait_gone) as waiting:
        assert not await waiting.wait()
    assert turn.task.cancelled()


async def test_a_turn_and_the_watch_that_end_slowly_are_waited_for():
    ended = []

    async def slow(name: str, until: asyncio.Event) -> None:
        try:
            await until.wait()
        finally:
            for _ in range(5):
                await asyncio.sleep(0)
            ended.append(name)

    async def run() -> TurnReply:
        await slow("turn", asyncio.Event())
        return REPLY

    gone = asyncio.Event()
    task = asyncio.create_task(run())
    async with TurnWait(SharedTurn(task), lambda: slow("watch", gone)) as waiting:
        gone.set()
        assert not await waiting.wait()
        assert ended == ["watch", "turn"]
    never = asyncio.Event()
    other = Turn()
    async with TurnWait(other.shared, lambda: slow("another watch", never)) as waiting:
        await waiting.wait(0.001)
    assert ended[2:] == ["another watch"]
    other.end.set()
    await other.task


async def test_a_turn_ends_with_the_last_client_that_waits_for_it():
    turn = Turn()
    others = TurnWait(turn.shared, turn.wait_gone), TurnWait(turn.shared, turn.wait_gone)
    gone = asyncio.Event()
    gone.set()

    async def wait_gone() -> None:
        await gone.wait()

    async with TurnWait(turn.shared, wait_gone) as first:
        assert not await first.wait()
    assert not turn.task.done()
    turn.gone.set()
    for other, is_last in zip(others, (False, True), strict=True):
        async with other:
            assert not await other.wait()
        assert turn.task.cancelled() is is_last


async def test_a_turn_that_ended_first_is_answered_to_a_client_that_is_gone():
    turn = Turn()
    turn.end.set()
    await turn.task
    turn.gone.set()
    async with TurnWait(turn.shared, turn.wait_gone) as waiting:
        assert await waiting.wait()
        assert waiting.result() is REPLY


async def test_leaving_stops_the_watch_and_the_turn_goes_on():
    turn = Turn()
    waiting = TurnWait(turn.shared, turn.wait_gone)
    async with waiting:
        await waiting.wait(0.001)
    turn.gone.set()
    await asyncio.sleep(0)
    assert not turn.task.done()
    async with waiting:
        assert not await waiting.wait()
    assert turn.task.cancelled()


async def test_the_error_of_a_turn_is_raised():
    turn = Turn(EngineTimeoutError("silent"))
    turn.end.set()
    async with TurnWait(turn.shared, None) as waiting:
        await waiting.wait()
        with pytest.raises(EngineTimeoutError):
            waiting.result()


async def test_a_turn_that_was_ended_with_the_process_is_a_503():
    turn = Turn()
    async with TurnWait(turn.shared, None) as waiting:
        turn.task.cancel()
        assert await waiting.wait()
        with pytest.raises(NotReadyError):
            waiting.result()
