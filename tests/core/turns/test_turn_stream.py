import asyncio
import json
from typing import Any

import pytest

from sessions.core.attempts.shared_turn import SharedTurn
from sessions.core.attempts.turn_reply import TurnReply
from sessions.core.attempts.turn_wait import TurnWait
from sessions.core.forms.chat_completions import CHAT_COMPLETIONS
from sessions.core.turns.turn_stream import TurnStream
from sessions.errors.client_visible import InternalError
from sessions.errors.engine import EngineTimeoutError
from tests.support.desk import sent_by
from tests.support.engines import json_reply
from tests.support.turn_outcomes import turn_reply

EVENTS = b"data: {}\n\ndata: [DONE]\n\n"
COMMENT = b": waiting for the engine\n\n"
UNRECORDED = b": x-turn-recorded: false\n\n"


async def stream(outcome: TurnReply | Exception | None, *, keepalive_s: float = 0.001) -> list[Any]:
    """What a stream sends whose turn ends after its second comment; None cancels the turn."""
    comments = 0
    enough = asyncio.Event()

    async def run() -> TurnReply:
        await enough.wait()
        if isinstance(outcome, TurnReply):
            return outcome
        raise outcome or asyncio.CancelledError

    waiting = TurnWait(SharedTurn(asyncio.create_task(run())), None)
    wait = waiting.wait

    async def counted(timeout_s: float | None = None) -> bool:
        nonlocal comments
        comments += 1
        if comments == 2:
            enough.set()
            timeout_s = None
        return await wait(timeout_s)

    waiting.wait = counted  # type: ignore[method-assign]
    return await sent_by(TurnStream(waiting, CHAT_COMPLETIONS, keepalive_s=keepalive_s))


def reply(body: bytes | None, *, is_recorded: bool = True, **engine: Any) -> TurnReply:  # noqa: ANN401
    made = json_reply(engine.get("document", {}), engine.get("status", 200))
    return turn_reply(body, is_recorded=is_recorded, engine=made)


async def test_comments_come_until_the_turn_is_there_then_all_of_it():
    head, *bodies = await stream(reply(EVENTS))
    assert head["status"] == 200
    assert dict(head["headers"]) == {
        b"content-type": b"text/event-stream; charset=utf-8",
        b"cache-control": b"no-cache",
        b"x-accel-buffering": b"no",
    }
    assert [body["body"] for body in bodies] == [COMMENT, COMMENT, EVENTS]
    assert [body.get("more_body", False) for body in bodies] == [True, True, False]


async def test_a_turn_that_was_not_recorded_says_so_in_a_comment():
    *_, last = await stream(reply(EVENTS, is_recorded=False))
    assert last["body"] == UNRECORDED + EVENTS


@pytest.mark.parametrize(
    ("error", "code"),
    [(EngineTimeoutError("m"), "engine_timeout"), (InternalError("m"), "internal_error")],
)
async def test_an_error_after_a_comment_is_an_event_without_done(error: Exception, code: str):
    *_, last = await stream(error)
    event = last["body"].removesuffix(UNRECORDED)
    assert json.loads(event.removeprefix(b"data: "))["error"]["code"] == code
    assert b"[DONE]" not in last["body"]


async def test_a_refusal_of_the_engine_after_a_comment_is_an_event_in_our_shape():
    refused = reply(None, status=500, document={"object": "error", "message": "m", "code": 7})
    *_, last = await stream(refused)
    error = json.loads(last["body"].removesuffix(UNRECORDED).removeprefix(b"data: "))["error"]
    assert error == {"message": "m", "type": "upstream_error", "param": None, "code": "7"}


async def test_a_stream_that_ends_with_the_process_says_so():
    *_, last = await stream(None)
    assert b'"code":"not_ready"' in last["body"]


async def test_a_stream_whose_client_is_gone_ends_without_events():
    turn = asyncio.create_task(asyncio.Event().wait())

    async def wait_gone() -> None:
        return

    waiting = TurnWait(SharedTurn(turn), wait_gone)  # type: ignore[arg-type]
    messages = await sent_by(TurnStream(waiting, CHAT_COMPLETIONS, keepalive_s=60))
    assert [message.get("body") for message in messages] == [None, COMMENT]
    assert turn.cancelled()
