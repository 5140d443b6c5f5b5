import asyncio
import base64
import json
from typing import Any

import httpx
import httpx2
import openai
import pytest

from sessions.routing.keys import session_key_of
from sessions.tokens.prompts import PromptBuilder
from tests.support.rollouts import (
    CHAT,
    SECRET,
    assert_exact_tokens,
    chat,
    create,
    error_of,
    message_of,
    open_rollouts,
    user,
)

TOOLS = [
    {
        "type": "function",
        "function": {
            "name": "get_weather",
            "description": "Weather of a city",
            "parameters": {"type": "object", "properties": {"city": {"type": "string"}}},
        },
    }
]


async def test_ten_turns_with_tools_keep_every_token(client: httpx.AsyncClient):
    session = (await create(client))["session_id"]
    history: list[Any] = ["what is the weather?"]
    for number in range(10):
        response = await chat(client, session, *history, tools=TOOLS)
        message = message_of(response)
        history.append(message)
        calls = message.get("tool_calls") or []
        history += [
            {"role": "tool", "tool_call_id": call["id"], "content": f"{number} degrees"}
            for call in calls
        ] or [f"and tomorrow {number}?"]
    read = (await client.get(f"/sessions/{session}")).json()
    assert len(read["records"]) == 10
    assert_exact_tokens(read)


async def test_the_openai_sdk_holds_a_session_plain_and_streamed(prompts: PromptBuilder):
    async with open_rollouts(prompts) as http:
        created = await create(http)
        asgi = http._transport.app  # type: ignore[attr-defined]
        sdk = openai.AsyncOpenAI(
            base_url=created["base_url"],
            api_key="any",
            max_retries=0,
            http_client=openai.DefaultAsyncHttpxClient(transport=httpx2.ASGITransport(asgi)),
        )
        history: list[Any] = [user("weather in Oslo?")]
        for number in range(6):
            if number % 2:
                message = await streamed(sdk, history)
            else:
                reply = await sdk.chat.completions.create(
                    model="sim",
                    messages=history,
                    tools=TOOLS,  # type: ignore[arg-type]
                )
                message = reply.choices[0].message.model_dump(exclude_none=True)
            history.append(message)
            calls = message.get("tool_calls") or []
            history += [
                {"role": "tool", "tool_call_id": call["id"], "content": "4 degrees"}
                for call in calls
            ] or [user("and tomorrow?")]
        await sdk.close()
        read = (await http.get(f"/sessions/{created['session_id']}")).json()
        assert len(read["records"]) == 6
        assert read["metadata"]["tito_session_mismatch"] == []
        assert any(message.get("tool_calls") for message in history)


async def streamed(sdk: openai.AsyncOpenAI, history: list[Any]) -> dict[str, Any]:
    """One streamed turn, put together by the SDK."""
    async with sdk.chat.completions.stream(
        model="sim",
        messages=history,
        tools=TOOLS,  # type: ignore[arg-type]
        stream_options={"include_usage": True},
    ) as stream:
        final = await stream.get_final_completion()
    assert final.usage is not None
    message: dict[str, Any] = final.choices[0].message.model_dump(exclude_none=True)
    message.pop("parsed", None)
    for call in message.get("tool_calls") or []:
        call["function"].pop("parsed_arguments", None)
    return message


async def test_the_record_is_there_when_done_is_read(client: httpx.AsyncClient):
    session = (await create(client))["session_id"]
    url = f"/sessions/{session}{CHAT}"
    async with client.stream("POST", url, json={"messages": [user("hi")], "stream": True}) as reply:
        async for line in reply.aiter_lines():
            if line == "data: [DONE]":
                read = (await client.get(f"/sessions/{session}")).json()
                assert len(read["records"]) == 1
                return
    pytest.fail("no [DONE]")


async def test_a_slow_stream_is_kept_alive(prompts: PromptBuilder):
    async with open_rollouts(prompts, sse_keepalive_s="0.05") as client:
        session = (await create(client))["session_id"]
        response = await chat(client, session, "hi", stream=True, sim={"delay_s": 0.3})
        assert response.status_code == 200
        assert response.text.startswith(": ")
        assert response.text.endswith("data: [DONE]\n\n")
        assert "content-length" not in response.headers


async def test_a_session_key_names_its_session_on_plain_paths(client: httpx.AsyncClient):
    created = await create(client)
    key = created["session_key"]
    body = {"messages": [user("hi")]}
    for headers in (
        {"authorization": f"Bearer {key}"},
        {"x-api-key": key},
        {"authorization": f"bearer  {key} "},
    ):
        response = await client.post(CHAT, json=body, headers=headers)
        assert response.status_code == 200
    read = (await client.get(f"/sessions/{created['session_id']}")).json()
    assert len(read["records"]) == 1
    assert (await client.get("/v1/models", headers={"x-api-key": key})).status_code == 200


@pytest.mark.parametrize(
    "headers",
    [
        {},
        {"authorization": "Bearer sk-none"},
        {"authorization": "Bearer " + session_key_of(b"another run", "a" * 32)},
        {"x-api-key": "a" * 32 + "." + "0" * 32},
        {"authorization": session_key_of(SECRET, "a" * 32)},
    ],
    ids=["none", "no session key", "another run", "forged", "no bearer"],
)
async def test_plain_paths_without_a_valid_key_are_a_401(
    headers: dict[str, str], client: httpx.AsyncClient
):
    response = await client.post(CHAT, json={"messages": [user("hi")]}, headers=headers)
    error = error_of(response, 401)
    assert error["type"] == "authentication_error"
    assert "www-authenticate" not in response.headers


async def test_a_valid_key_of_no_session_is_a_404(client: httpx.AsyncClient):
    headers = {"x-api-key": session_key_of(SECRET, "a" * 32)}
    error_of(await client.post(CHAT, json={}, headers=headers), 404)


async def test_session_keys_stay_here_and_other_credentials_reach_the_engine(
    client: httpx.AsyncClient,
):
    created = await create(client)
    echo = f"/sessions/{created['session_id']}/echo"
    key = created["session_key"]
    seen = (await client.get(echo, headers={"x-api-key": key})).text
    assert key not in seen
    assert "sk-mine" in (await client.get(echo, headers={"authorization": "Bearer sk-mine"})).text


async def test_one_content_type_and_length_whatever_the_engine_sends(client: httpx.AsyncClient):
    session = (await create(client))["session_id"]
    fault = {
        "kind": "status",
        "status": 200,
        "text": "plain",
        "headers": [["server", "x"], ["date", "x"], ["x-own", "1"]],
    }
    for response in (
        await chat(client, session, "hi"),
        await chat(client, session, "hi", sim={"fault": {**fault, "status": 503}}),
        await client.get(f"/sessions/{session}/v1/models"),
        await client.get(f"/sessions/{session}/health"),
    ):
        names = [name for name, _ in response.headers.multi_items()]
        for name in ("content-length", "content-type"):
            assert names.count(name) <= 1
        assert "content-length" in names
        assert not {"server", "date", "transfer-encoding"} & set(names)
        assert int(response.headers["content-length"]) == len(response.content)


async def test_an_engine_error_that_is_no_json_is_wrapped(client: httpx.AsyncClient):
    session = (await create(client))["session_id"]
    fault = {
        "kind": "status",
        "status": 503,
        "text": "overloaded",
        "headers": [["retry-after", "7"]],
    }
    response = await chat(client, session, "hi", sim={"fault": fault})
    assert error_of(response, 503)["message"] == "overloaded"
    assert response.headers["retry-after"] == "7"
    assert response.headers["x-turn-recorded"] == "false"


@pytest.mark.parametrize(
    "kind",
    [
        "no_choices",
        "no_meta_info",
        "no_logprobs",
        "token_count",
        "no_token_count",
        "prompt_ids",
        "broken_json",
        "cut",
        "reset",
    ],
)
async def test_a_reply_of_which_no_turn_can_be_made_is_a_502_and_the_next_turn_works(
    kind: str, client: httpx.AsyncClient
):
    session = (await create(client))["session_id"]
    response = await chat(client, session, "hi", sim={"fault": {"kind": kind}})
    assert error_of(response, 502)["type"] == "upstream_error"
    assert response.headers["x-should-retry"] == "true"
    read = (await client.get(f"/sessions/{session}")).json()
    assert read["records"] == []
    assert (await chat(client, session, "hi")).status_code == 200


@pytest.mark.parametrize("kind", ["null_content", "nan_logprobs", "lone_surrogate", "chunked"])
async def test_an_odd_reply_is_a_turn_that_can_be_read_and_extended(
    kind: str, client: httpx.AsyncClient
):
    session = (await create(client))["session_id"]
    message = message_of(await chat(client, session, "hi", sim={"fault": {"kind": kind}}))
    read = await client.get(f"/sessions/{session}")
    assert len(read.json()["records"]) == 1
    body = json.dumps({"messages": [user("hi"), message, user("more")]})
    response = await client.post(f"/sessions/{session}{CHAT}", content=body)
    assert response.status_code == 200
    assert len((await client.get(f"/sessions/{session}")).json()["records"]) == 2


async def test_an_engine_that_stands_still_is_a_504(prompts: PromptBuilder):
    async with open_rollouts(prompts, engine_timeout_s="0.2") as client:
        session = (await create(client))["session_id"]
        response = await chat(client, session, "hi", sim={"fault": {"kind": "stall"}})
        assert error_of(response, 504)["code"] == "engine_timeout"
        assert (await chat(client, session, "hi")).status_code == 200


async def test_an_engine_that_is_not_there_is_a_502(prompts: PromptBuilder):
    async with open_rollouts(prompts, "http://127.0.0.1:1") as client:
        session = (await create(client))["session_id"]
        for response in (await chat(client, session, "hi"), await client.get("/v1/models")):
            assert error_of(response, 502)["code"] == "engine_unreachable"


async def test_a_prompt_over_the_context_is_told_by_code(prompts: PromptBuilder):
    async with open_rollouts(prompts, "sim:?context=64") as client:
        session = (await create(client))["session_id"]
        response = await chat(client, session, "word " * 100)
        assert error_of(response, 400)["code"] == "context_length_exceeded"


@pytest.mark.parametrize("copies", ["one", "both"])
async def test_routed_experts_are_recorded_bit_for_bit_and_never_sent(
    copies: str, prompts: PromptBuilder
):
    async with open_rollouts(
        prompts, f"sim:?copies={copies}&layers=48&topk=8", routing_replay="1"
    ) as client:
        session = (await create(client))["session_id"]
        plain = await chat(client, session, "hi")
        assert "routed_experts" not in plain.text
        read = (await client.get(f"/sessions/{session}")).json()
        (record,) = read["records"]
        assert record["request"]["return_routed_experts"] is True
        blob = record["response"]["choices"][0]["meta_info"]["routed_experts"]
        rows = len(read["metadata"]["accumulated_token_ids"]) - 1
        assert len(base64.b64decode(blob)) == rows * 48 * 8 * 4
        if copies == "both":
            assert record["response"]["sglext"]["routed_experts"] == blob


async def test_records_are_read_in_ranges_whose_sum_is_the_whole(prompts: PromptBuilder):
    async with open_rollouts(prompts, "sim:?layers=48&topk=8", routing_replay="1") as client:
        session = (await create(client))["session_id"]
        first = await chat(client, session, "hi")
        await chat(client, session, "hi", message_of(first), "go on")
        whole = await client.get(f"/sessions/{session}")
        size = len(whole.content)
        assert whole.headers["content-length"] == str(size)
        got = b""
        for start in range(0, size, 10_007):
            asked = {"range": f"bytes={start}-{start + 10_006}", "if-range": whole.headers["etag"]}
            part = await client.get(f"/sessions/{session}", headers=asked)
            assert part.status_code == 206
            got += part.content
        assert got == whole.content
        behind = await client.get(f"/sessions/{session}", headers={"range": f"bytes={size}-"})
        assert error_of(behind, 416)["code"] == "range_not_satisfiable"
        assert behind.headers["content-range"] == f"bytes */{size}"


async def test_head_of_a_session_has_the_headers_of_get(client: httpx.AsyncClient):
    session = (await create(client))["session_id"]
    await chat(client, session, "hi")
    got = await client.get(f"/sessions/{session}")
    head = await client.head(f"/sessions/{session}", headers={"range": "bytes=0-1"})
    assert (head.status_code, head.content) == (200, b"")
    assert head.headers.multi_items() == got.headers.multi_items()


async def test_a_tag_changes_with_the_session(client: httpx.AsyncClient):
    session = (await create(client))["session_id"]
    tags = []
    for _ in range(2):
        await chat(client, session, "hi")  # again: the last turn is replaced
        answers = [await client.get(f"/sessions/{session}") for _ in range(2)]
        assert answers[0].headers["etag"] == answers[1].headers["etag"]
        tags.append(answers[0].headers["etag"])
    assert tags[0] != tags[1]
    old = await client.get(f"/sessions/{session}", headers={"if-none-match": tags[0]})
    new = await client.get(f"/sessions/{session}", headers={"if-none-match": tags[1]})
    assert (old.status_code, new.status_code, new.content) == (200, 304, b"")


@pytest.mark.parametrize("query", ["turns=x", "fields=y", "raw=2", "replay=x"])
async def test_a_malformed_choice_of_records_is_named(query: str, client: httpx.AsyncClient):
    session = (await create(client))["session_id"]
    refused = await client.get(f"/sessions/{session}?{query}")
    assert error_of(refused, 400)["param"] == query.partition("=")[0]


async def test_eight_sessions_take_three_turns_at_once(client: httpx.AsyncClient):
    async def rollout() -> int:
        session = (await create(client))["session_id"]
        history: list[Any] = ["hi"]
        for _ in range(3):
            history += [message_of(await chat(client, session, *history)), "more"]
        return len((await client.get(f"/sessions/{session}")).json()["records"])

    assert await asyncio.gather(*(rollout() for _ in range(8))) == [3] * 8


async def test_two_deletes_at_once_are_one_204_and_one_410(client: httpx.AsyncClient):
    session = (await create(client))["session_id"]
    replies = await asyncio.gather(*(client.delete(f"/sessions/{session}") for _ in range(2)))
    assert sorted(reply.status_code for reply in replies) == [204, 410]
