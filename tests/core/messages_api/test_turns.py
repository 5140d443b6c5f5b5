"""Sessions that are played through the Messages API, on a scripted engine."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Sequence
from typing import Any

import pytest
from starlette.responses import Response

from sessions.core.matchers.fields import ROLE_CONTENT_ONLY
from sessions.core.messages_api.form import MESSAGES
from sessions.core.open_sessions.session_options import SessionMode, SessionOptions
from sessions.core.texts.json_text import Json
from sessions.errors.client_visible import RequestError
from sessions.errors.engine import EngineTimeoutError
from sessions.errors.sessions import GoneSessionError
from sessions.tokens.prompts import PromptBuilder
from tests.support.desk import Desk, body_of, is_recorded, sent_by, user
from tests.support.engines import Answer, json_reply
from tests.support.waiting import wait_until_async

OpenDesk = Callable[..., Any]
Headers = Sequence[tuple[bytes, bytes]]

ARGUMENTS = '{ "city":"Oslo",  "days": 1.0}'
CALL = {"id": "c1", "type": "function", "function": {"name": "f", "arguments": ARGUMENTS}}
RESULT = {"type": "tool_result", "tool_use_id": "c1", "content": "4 degrees"}
AGAIN = [(b"x-stainless-retry-count", b"1")]
TREE = SessionOptions(
    mode=SessionMode.TREE, max_turns=100, max_session_tokens=1 << 20, max_tree_turns=100
)


def raw(*messages: object, **fields: object) -> bytes:
    told = [user(message) for message in messages]
    return json.dumps({"model": "m", "max_tokens": 50, "messages": told, **fields}).encode()


async def send(
    desk: Desk, session: str, *messages: object, headers: Headers = (), **fields: object
) -> Response:
    request = desk.request(raw(*messages, **fields), headers, b"beta=true")
    response: Response = await desk.core.chat(session, request, MESSAGES)
    return response


async def reply(
    desk: Desk,
    session: str,
    *messages: object,
    **fields: Any,  # noqa: ANN401 - JSON
) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(
        await body_of(await send(desk, session, *messages, **fields))
    )
    return found


def sent_back(message: dict[str, Any]) -> dict[str, Any]:
    return {"role": "assistant", "content": message["content"]}


async def prompts_of(desk: Desk, session: str) -> list[list[int]]:
    return [r["request"]["input_ids"] for r in (await desk.read(session))["records"]]


async def test_a_turn_is_a_chat_like_any_other(open_desk: OpenDesk):
    async with open_desk() as desk:
        session = desk.open()
        told = await reply(desk, session, "hi", system="be kind", stop_sequences=["END"])
        assert told["content"] == [{"type": "text", "text": "ok"}]
        (asked,) = desk.engine.requests
        assert asked.target.startswith(b"/v1/chat/completions")
        (body,) = desk.engine.bodies
        messages = [{"role": "system", "content": "be kind"}, {"role": "user", "content": "hi"}]
        assert body["messages"] == messages
        assert body["stop"] == ["END"]
        (record,) = (await desk.read(session))["records"]
        assert record["path"] == "/v1/chat/completions"
        prompt = desk.prompts.first(messages)
        assert record["request"]["input_ids"] == prompt
        assert told["usage"]["input_tokens"] == len(prompt)
        assert told["usage"]["output_tokens"] == len(desk.sampled_ids("ok"))


@pytest.mark.parametrize("session_options", [SessionOptions(), TREE], ids=["linear", "tree"])
async def test_a_turn_with_thought_and_tools_goes_on_where_it_ended(
    session_options: SessionOptions, prompts: PromptBuilder, open_desk: OpenDesk
):
    desk_of = Desk(prompts)
    called = desk_of.says("look", reasoning_content="hm", tool_calls=[CALL])
    async with open_desk(called, desk_of.says("cold"), session=session_options) as desk:
        session = desk.open()
        first = await reply(desk, session, "weather?")
        kinds = [block["type"] for block in first["content"]]
        assert kinds == ["thinking", "text", "tool_use"]
        assert first["content"][2]["input"] == {"city": "Oslo", "days": 1.0}
        await reply(
            desk, session, "weather?", sent_back(first), {"role": "user", "content": [RESULT]}
        )
        one, two = await prompts_of(desk, session)
        sampled = desk.sampled_ids("look")
        assert two[: len(one) + len(sampled)] == one + sampled


async def test_a_client_that_leaves_the_thought_out_goes_on_where_the_matcher_does(
    prompts: PromptBuilder, open_desk: OpenDesk
):
    says = Desk(prompts).says("ok", reasoning_content="hm")
    for rules, turns in (({}, 1), ({"matcher": ROLE_CONTENT_ONLY}, 2)):
        async with open_desk(says, **rules) as desk:
            session = desk.open()
            await reply(desk, session, "hi")
            await reply(desk, session, "hi", {"role": "assistant", "content": "ok"}, "and?")
            assert len((await desk.read(session))["records"]) == turns


async def test_clients_of_both_apis_take_turns_in_one_session(
    prompts: PromptBuilder, open_desk: OpenDesk
):
    made = Desk(prompts)
    answers = [made.says("a", tool_calls=[CALL]), made.says("b", tool_calls=[CALL]), made.says("c")]
    async with open_desk(*answers) as desk:
        session = desk.open()
        system = {"role": "system", "content": "be kind"}
        chat = json.loads(bytes((await desk.chat(session, system, "hi")).body))
        first = chat["choices"][0]["message"]
        use = {"type": "tool_use", "id": "c1", "name": "f", "input": json.loads(ARGUMENTS)}
        content = [{"type": "text", "text": "a"}, use]
        second = await reply(
            desk,
            session,
            "hi",
            {"role": "assistant", "content": content},
            {"role": "user", "content": [RESULT]},
            system="be kind",
        )
        assert second["content"][0]["text"] == "b"
        tool = {"role": "tool", "tool_call_id": "c1", "content": "4 degrees"}
        again = {"role": "assistant", "content": "b", "tool_calls": [CALL]}
        await desk.chat(session, system, "hi", first, tool, again, tool)
        assert await desk.contents(session) == ["a", "b", "c"]


@pytest.mark.parametrize("stream", [False, True], ids=["plain", "streamed"])
async def test_a_retry_gets_the_reply_that_was_lost(stream: bool, open_desk: OpenDesk):  # noqa: FBT001
    async with open_desk() as desk:
        session = desk.open()
        first = await body_of(await send(desk, session, "hi", stream=stream))
        again = await send(desk, session, "hi", stream=stream, headers=AGAIN)
        assert await body_of(again) == first
        assert is_recorded(again)
        assert len(desk.engine.requests) == 1


async def test_the_same_bytes_to_the_other_api_are_no_retry(open_desk: OpenDesk):
    async with open_desk() as desk:
        session = desk.open()
        desk.engine.gate.clear()
        requests = [desk.request(raw("hi"), AGAIN) for _ in range(2)]
        one = asyncio.create_task(desk.core.chat(session, requests[0]))
        other = asyncio.create_task(desk.core.chat(session, requests[1], MESSAGES))
        await wait_until_async(lambda: desk.engine.waiting == 2, "two turns at the engine")
        desk.engine.gate.set()
        assert json.loads(await body_of(await one))["object"] == "chat.completion"
        assert json.loads(await body_of(await other))["type"] == "message"


async def test_the_sampling_that_the_session_fixes_counts(open_desk: OpenDesk):
    async with open_desk() as desk:
        session = desk.open(sampling={"max_tokens": 7, "stop": "X"})
        await reply(desk, session, "hi", stop_sequences=["END"], max_tokens=5)
        (body,) = desk.engine.bodies
        assert (body["max_tokens"], body["stop"]) == (7, "X")


def names_of(sent: list[Any]) -> list[str]:
    text = b"".join(each.get("body", b"") for each in sent).decode()
    return [line.removeprefix("event: ") for line in text.split("\n") if line[:6] == "event:"]


async def test_a_stream_that_waits_is_pinged_then_told(open_desk: OpenDesk):
    async with open_desk(keepalive_s=0.001) as desk:
        desk.engine.gate.clear()
        sending = asyncio.create_task(send(desk, desk.open(), "hi", stream=True))
        response = await sending
        body = asyncio.create_task(sent_by(response))
        await wait_until_async(lambda: desk.engine.waiting == 1, "the turn is at the engine")
        desk.engine.gate.set()
        names = names_of(await body)
        assert names[0] == "ping"
        assert [name for name in names if name != "ping"] == [
            "message_start",
            "content_block_start",
            "content_block_delta",
            "content_block_stop",
            "message_delta",
            "message_stop",
        ]


@pytest.mark.parametrize(
    ("answer", "kind"),
    [
        (EngineTimeoutError("too slow"), "timeout_error"),
        (json_reply({"message": "no"}, 400), "invalid_request_error"),
    ],
    ids=["failed", "refused"],
)
async def test_a_stream_that_has_begun_tells_the_fault_as_an_event(
    answer: Answer,
    kind: str,
    open_desk: OpenDesk,
):
    async with open_desk(answer, keepalive_s=0.001) as desk:
        desk.engine.gate.clear()
        response = await send(desk, desk.open(), "hi", stream=True)
        body = asyncio.create_task(sent_by(response))
        desk.engine.gate.set()
        sent = await body
        assert names_of(sent)[-1] == "error"
        event = sent[-1]["body"].decode()
        assert event.endswith("\n\n: x-turn-recorded: false\n\n")
        told = json.loads(event.split("\n")[1].removeprefix("data: "))
        assert (told["type"], told["error"]["type"]) == ("error", kind)


async def test_a_refusal_of_the_engine_before_a_stream_keeps_its_status(open_desk: OpenDesk):
    async with open_desk(json_reply({"message": "no"}, 429)) as desk:
        response = await send(desk, desk.open(), "hi", stream=True)
        assert response.status_code == 429
        assert json.loads(bytes(response.body))["error"]["type"] == "rate_limit_error"


async def count(desk: Desk, session: str, body: bytes) -> int:
    response = await desk.core.count_tokens(session, desk.request(body))
    found: Json = json.loads(bytes(response.body))
    assert list(found) == ["input_tokens"]
    return int(found["input_tokens"])


async def test_tokens_are_counted_as_a_first_turn_has_them(open_desk: OpenDesk):
    tools = [{"name": "f", "input_schema": {"type": "object"}}]
    async with open_desk() as desk:
        session = desk.open()
        counted = await count(desk, session, raw("hi", system="be kind", tools=tools))
        assert (await desk.read(session))["records"] == []
        assert desk.engine.requests == []
        told = await reply(desk, session, "hi", system="be kind", tools=tools)
        assert counted == told["usage"]["input_tokens"]
        begun = {"role": "assistant", "content": "The"}
        assert await count(desk, session, raw("hi" * 9000, begun)) > 9000


async def test_tokens_are_counted_of_requests_in_sessions_only(open_desk: OpenDesk):
    async with open_desk() as desk:
        session = desk.open()
        with pytest.raises(RequestError):
            await count(desk, session, b"{}")
        desk.core.delete(session)
        with pytest.raises(GoneSessionError):
            await count(desk, session, raw("hi"))
