"""Turns in tasks of their own: how they end is counted and logged, nobody has to ask."""

import asyncio
import logging

import pytest

from sessions.core.attempts.turn_reply import TurnReply
from sessions.core.open_sessions.session import Session
from sessions.core.turns.running_turns import RunningTurns, TurnCounts
from sessions.engine.engine import EngineReply
from sessions.errors.client_visible import InternalError, RequestError
from sessions.errors.engine import EngineTimeoutError
from tests.support.turn_outcomes import turn_reply

REFUSED = EngineReply(status=400, headers=(), body=b"no")


async def reply(body: bytes | None, *, is_recorded: bool) -> TurnReply:
    return turn_reply(body, is_recorded=is_recorded, engine=REFUSED)


async def fail(error: Exception) -> TurnReply:
    raise error


async def wait_for_ever() -> TurnReply:
    await asyncio.Event().wait()
    raise AssertionError("unreachable")


async def test_each_end_is_counted_once():
    turns, session = RunningTurns(), Session("s")
    tasks = [
        turns.start(session, turn).task
        for turn in (
            reply(b"{}", is_recorded=True),
            reply(b"{}", is_recorded=False),
            reply(None, is_recorded=False),
            fail(RequestError("x")),
            wait_for_ever(),
        )
    ]
    assert (len(turns), session.turns_in_flight) == (5, 5)
    await asyncio.wait(tasks[:4])
    assert (len(turns), session.turns_in_flight) == (1, 1)
    await turns.close()
    assert (len(turns), session.turns_in_flight) == (0, 0)
    assert turns.counts == TurnCounts(recorded=1, unrecorded=1, failed=3)


async def test_what_nobody_expected_becomes_our_fault(caplog: pytest.LogCaptureFixture):
    turns = RunningTurns()
    with pytest.raises(InternalError):
        await turns.start(Session("s"), fail(KeyError("x"))).task
    (record,) = caplog.records
    assert record.levelno == logging.ERROR
    assert record.exc_info


@pytest.mark.parametrize(
    ("error", "logged"), [(EngineTimeoutError("secret"), 1), (RequestError("secret"), 0)]
)
async def test_only_failures_that_are_not_the_clients_are_logged_without_their_text(
    caplog: pytest.LogCaptureFixture, error: Exception, logged: int
):
    with pytest.raises(type(error)):
        await RunningTurns().start(Session("s"), fail(error)).task
    assert len(caplog.records) == logged
    assert "secret" not in caplog.text
