"""What trainers rely on who come from a server of one process, where no other test holds it.

The lines of the list are named in docs/cases.md, section migration.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from typing import Any

import pytest

from sessions.errors.sessions import GoneSessionError
from sessions.errors.turns import HistoryMismatchError
from tests.support.desk import Desk, assistant, body_of, is_recorded
from tests.support.engines import json_reply
from tests.support.waiting import wait_until_async

OpenDesk = Callable[..., Any]


def says(desk: Desk, *texts: str) -> None:
    desk.engine.answers = [desk.says(text) for text in texts]


async def test_a_request_that_only_drops_the_last_turn_samples_the_turn_before_it_anew(
    open_desk: OpenDesk,
):
    async with open_desk() as desk:
        says(desk, "one", "two", "three", "four")
        session = desk.open()
        history: list[Any] = ["a", assistant("one"), "b", assistant("two")]
        await desk.chat(session, *history[:1])
        await desk.chat(session, *history[:3])
        await desk.chat(session, *history, "c")
        # The reply of the second turn is left out, and so is what followed it.
        with pytest.raises(HistoryMismatchError):
            await desk.chat(session, *history[:3])
        await desk.chat(session, *history)
        assert await desk.contents(session) == ["one", "two", "four"]


async def test_a_refused_roll_back_leaves_the_session_as_it_was_and_it_goes_on(open_desk: OpenDesk):
    async with open_desk() as desk:
        says(desk, "one", "two", "three")
        session = desk.open()
        await desk.chat(session, "a")
        await desk.chat(session, "a", assistant("one"), "b")
        before = await desk.read(session)
        with pytest.raises(HistoryMismatchError, match="discard 2 sampled turns") as caught:
            await desk.chat(session, "other")
        assert caught.value.param == "messages[0].content"
        assert await desk.read(session) == before
        await desk.chat(session, "a", assistant("one"), "b", assistant("two"), "c")
        assert await desk.contents(session) == ["one", "two", "three"]


async def test_a_first_turn_that_failed_leaves_room_for_any_other(open_desk: OpenDesk):
    async with open_desk(json_reply({"message": "no"}, 400)) as desk:
        session = desk.open()
        assert (await desk.chat(session, "one")).status_code == 400
        says(desk, "ok")
        assert is_recorded(await desk.chat(session, {"role": "system", "content": "s"}, "two"))
        (record,) = (await desk.read(session))["records"]
        assert [m["content"] for m in record["request"]["messages"]] == ["s", "two"]


async def test_an_assistant_message_that_the_client_puts_in_is_text_of_the_prompt(
    open_desk: OpenDesk,
):
    async with open_desk() as desk:
        says(desk, "one", "two")
        session = desk.open()
        await desk.chat(session, "a")
        await desk.chat(session, "a", assistant("one"), "b", assistant("put in"), "c")
        first, second = [body["input_ids"] for body in desk.engine.bodies]
        checkpoint = first + desk.sampled_ids("one")
        assert second[: len(checkpoint)] == checkpoint
        assert "put in" in desk.prompts.tokenizer.decode(second[len(checkpoint) :])
        assert await desk.contents(session) == ["one", "two"]
        assert (await desk.read(session))["metadata"]["tito_session_mismatch"] == []


@pytest.mark.parametrize("stream", [None, False])
async def test_a_turn_is_json_unless_a_stream_is_asked_for(
    open_desk: OpenDesk, *, stream: bool | None
):
    async with open_desk() as desk:
        fields = {} if stream is None else {"stream": stream}
        reply = await desk.chat(desk.open(), "hi", **fields)
        assert reply.headers["content-type"] == "application/json"
        assert json.loads(reply.body)["object"] == "chat.completion"


async def test_a_refusal_of_the_engine_is_json_with_its_status_though_a_stream_was_asked_for(
    open_desk: OpenDesk,
):
    async with open_desk(json_reply({"error": {"message": "no"}}, 429)) as desk:
        session = desk.open()
        reply = await desk.chat(session, "hi", stream=True)
        assert reply.status_code == 429
        assert reply.headers["content-type"] == "application/json"
        assert json.loads(reply.body)["error"]["message"] == "no"
        assert (await desk.read(session))["records"] == []


async def test_a_length_cut_is_told_in_the_stream_and_so_is_the_usage(open_desk: OpenDesk):
    async with open_desk() as desk:
        document = desk.document("ok")
        document["choices"][0]["finish_reason"] = "length"
        desk.engine.answers = [json_reply(document)]
        reply = await desk.chat(
            desk.open(), "hi", stream=True, stream_options={"include_usage": True}
        )
        lines = [line[6:] for line in bytes(reply.body).split(b"\n\n") if line]
        chunks = [json.loads(line) for line in lines[:-1]]
        assert [c["choices"][0]["finish_reason"] for c in chunks[:-1]][-1] == "length"
        assert chunks[-1]["choices"] == []
        assert chunks[-1]["usage"] == document["usage"]


async def test_a_conversation_of_calls_that_a_client_rebuilt_from_streams_goes_on(
    open_desk: OpenDesk,
):
    function = {"name": "f", "arguments": '{"a": 1}'}
    calls = [{"id": f"c{n}", "type": "function", "function": function} for n in range(2)]
    tools = [{"type": "function", "function": {"name": "f"}}]
    async with open_desk() as desk:
        desk.engine.answers = [desk.says("", tool_calls=calls), desk.says("done")]
        session = desk.open()
        reply = await desk.chat(session, "hi", stream=True, tools=tools)
        rebuilt = _rebuilt(bytes(reply.body))
        assert [call["index"] for call in rebuilt["tool_calls"]] == [0, 1]
        results = [{"role": "tool", "tool_call_id": c["id"], "content": "r"} for c in calls]
        assert is_recorded(await desk.chat(session, "hi", rebuilt, *results, tools=tools))
        assert len((await desk.read(session))["records"]) == 2


def _rebuilt(events: bytes) -> dict[str, Any]:
    """The message that an SDK makes of a stream's deltas."""
    message: dict[str, Any] = {"role": "assistant", "content": "", "tool_calls": []}
    for line in events.split(b"\n\n"):
        if not line.startswith(b"data: {"):
            continue
        for choice in json.loads(line[6:])["choices"]:
            delta = choice["delta"]
            message["content"] += delta.get("content") or ""
            for call in delta.get("tool_calls", ()):
                if call["index"] == len(message["tool_calls"]):
                    message["tool_calls"].append(call)
                else:
                    told = message["tool_calls"][call["index"]]["function"]
                    told["arguments"] += call["function"]["arguments"]
    return message


async def test_sampling_parameters_of_the_client_pass_and_are_recorded_as_sent(open_desk: OpenDesk):
    # C-T60: whether they make sense together is the engine's to say.
    sent = {
        "temperature": 0.3,
        "requirement": "none",
        "stop": ["x"],
        "logit_bias": {"1": -100},
        "max_tokens": 5,
        "max_completion_tokens": 7,
    }
    async with open_desk() as desk:
        session = desk.open()
        assert is_recorded(await desk.chat(session, "hi", **sent))
        (record,) = (await desk.read(session))["records"]
        assert sent.items() <= desk.engine.bodies[0].items()
        assert record["request"] == desk.engine.bodies[0]


async def test_eight_sessions_of_three_turns_run_at_once_and_keep_apart(open_desk: OpenDesk):
    async with open_desk() as desk:
        sessions = [desk.open() for _ in range(8)]

        async def converse(number: int, session: str) -> None:
            history: list[Any] = []
            for turn in range(3):
                history.append(f"session {number} turn {turn}")
                assert is_recorded(await desk.chat(session, *history))
                history.append(assistant("ok"))

        await asyncio.gather(*(converse(n, session) for n, session in enumerate(sessions)))
        for number, session in enumerate(sessions):
            records = (await desk.read(session))["records"]
            sent = [record["request"]["messages"][-1]["content"] for record in records]
            assert sent == [f"session {number} turn {turn}" for turn in range(3)]


async def test_chats_that_wait_when_their_session_is_deleted_are_answered_or_told_that_it_is_gone(
    open_desk: OpenDesk,
):
    async with open_desk() as desk:
        session = desk.open()
        desk.engine.gate.clear()
        chats = [desk.chat_later(session, "hi", seed=number) for number in range(8)]
        await wait_until_async(lambda: desk.engine.waiting == 8, "all are at the engine")
        late = desk.chat_later(session, "late")
        desk.core.delete(session)
        desk.engine.gate.set()
        for chat in chats:
            assert (await chat).status_code == 200
            assert not is_recorded(await chat)
        with pytest.raises(GoneSessionError):
            await late


async def test_reading_during_a_turn_shows_the_turns_before_it(open_desk: OpenDesk):
    async with open_desk() as desk:
        says(desk, "one", "two")
        session = desk.open()
        await desk.chat(session, "a")
        desk.engine.gate.clear()
        chat = desk.chat_later(session, "a", assistant("one"), "b")
        await wait_until_async(lambda: desk.engine.waiting == 1, "the turn is at the engine")
        assert await desk.contents(session) == ["one"]
        desk.engine.gate.set()
        await body_of(await chat)
        assert await desk.contents(session) == ["one", "two"]
