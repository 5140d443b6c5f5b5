import asyncio

from sessions.core.attempts.shared_turn import SharedTurn
from sessions.core.attempts.turn_reply import TurnReply
from tests.support.turn_outcomes import turn_reply


async def end_of(gate: asyncio.Event) -> TurnReply:
    await gate.wait()
    return turn_reply()


async def test_a_turn_goes_on_until_its_last_client_left():
    turn = SharedTurn(asyncio.create_task(end_of(asyncio.Event())))
    for _ in range(3):
        turn.join()
    assert [turn.leave(), turn.leave()] == [False, False]
    turn.join()
    assert not turn.leave()
    assert not turn.is_given_up
    assert turn.leave()
    assert turn.is_given_up
    await asyncio.wait({turn.task})
    assert turn.task.cancelled()
