"""Anthropic's SDK plays sessions of the rollout application, on the simulated engine.

C-T65 and C-T66 of docs/cases.md.
"""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import anthropic
import httpx
import httpx2
import pytest

from sessions.tokens.prompts import PromptBuilder
from tests.support.rollouts import (
    CHAT,
    ORIGIN,
    assert_exact_tokens,
    chat,
    create,
    message_of,
    open_rollouts,
    user,
)

TOOLS: Any = [
    {
        "name": "get_weather",
        "description": "Weather of a city",
        "input_schema": {"type": "object", "properties": {"city": {"type": "string"}}},
    }
]
HI: Any = [user("hi")]
TOKENS = 200


@asynccontextmanager
async def sdk_of(
    http: httpx.AsyncClient, base_url: str, **credentials: str
) -> AsyncIterator[anthropic.AsyncAnthropic]:
    """The SDK on the application that a client has."""
    asgi = http._transport.app  # type: ignore[attr-defined]
    async with anthropic.AsyncAnthropic(
        base_url=base_url,
        max_retries=0,
        http_client=anthropic.DefaultAsyncHttpxClient(transport=httpx2.ASGITransport(asgi)),
        **(credentials or {"api_key": "any"}),  # type: ignore[arg-type]
    ) as sdk:
        yield sdk


async def one_turn(
    sdk: anthropic.AsyncAnthropic, history: list[Any], *, streams: bool
) -> anthropic.types.Message:
    asked: dict[str, Any] = {"model": "sim", "max_tokens": TOKENS, "messages": history}
    asked |= {"tools": TOOLS, "system": [{"type": "text", "text": "You tell the weather."}]}
    if not streams:
        reply: anthropic.types.Message = await sdk.messages.create(**asked)
        return reply
    async with sdk.messages.stream(**asked) as stream:
        return await stream.get_final_message()


def answer_to(message: anthropic.types.Message) -> dict[str, Any]:
    """What an agent says next: the results of tools, or another question."""
    results = [
        {"type": "tool_result", "tool_use_id": block.id, "content": "4 degrees"}
        for block in message.content
        if block.type == "tool_use"
    ]
    return {"role": "user", "content": results or "and tomorrow in Bergen?"}


async def test_the_sdk_holds_a_session_plain_and_streamed(prompts: PromptBuilder):
    async with open_rollouts(prompts) as http:
        created = await create(http)
        history: list[Any] = [user("weather in Oslo?")]
        kinds: set[str] = set()
        reasons: set[str | None] = set()
        async with sdk_of(http, created["anthropic_base_url"]) as sdk:
            for number in range(8):
                message = await one_turn(sdk, history, streams=bool(number % 2))
                assert message.usage.output_tokens > 0
                kinds |= {block.type for block in message.content}
                reasons.add(message.stop_reason)
                history += [message.to_param(), answer_to(message)]
        assert kinds == {"thinking", "text", "tool_use"}
        assert "tool_use" in reasons
        read = (await http.get(f"/sessions/{created['session_id']}")).json()
        assert len(read["records"]) == 8
        assert_exact_tokens(read)


async def test_a_session_key_names_the_session_for_either_credential(prompts: PromptBuilder):
    async with open_rollouts(prompts) as http:
        created = await create(http)
        key = created["session_key"]
        for credentials in ({"api_key": key}, {"auth_token": key}):
            async with sdk_of(http, ORIGIN, **credentials) as sdk:
                await sdk.messages.create(model="sim", max_tokens=TOKENS, messages=HI)
        read = (await http.get(f"/sessions/{created['session_id']}")).json()
        assert len(read["records"]) == 1  # the second one is a new sample of the first


async def test_the_beta_api_is_the_same(prompts: PromptBuilder):
    async with open_rollouts(prompts) as http:
        created = await create(http)
        async with sdk_of(http, created["anthropic_base_url"]) as sdk:
            reply = await sdk.beta.messages.create(
                model="sim", max_tokens=TOKENS, messages=HI, betas=["context-1m-2025-08-07"]
            )
            counted = await sdk.messages.count_tokens(model="sim", messages=HI)
        assert reply.usage.input_tokens + (reply.usage.cache_read_input_tokens or 0) == (
            counted.input_tokens
        )


@pytest.mark.parametrize("streams", [False, True], ids=["plain", "streamed"])
async def test_the_sdk_reads_what_goes_wrong(prompts: PromptBuilder, *, streams: bool):
    async with open_rollouts(prompts) as http:
        created = await create(http)
        base = created["anthropic_base_url"]

        async def error_of(url: str, status: int, code: str, **fields: Any) -> None:  # noqa: ANN401
            asked = {"model": "sim", "max_tokens": TOKENS, "messages": HI, **fields}
            async with sdk_of(http, url) as sdk:
                with pytest.raises(anthropic.APIStatusError) as raised:
                    await sdk.messages.create(stream=streams, **asked)
            error = raised.value
            assert (error.status_code, error.error_code) == (status, code)
            assert isinstance(error.body, dict)
            assert error.body["type"] == "error"

        await error_of(ORIGIN, 401, "bad_session_key")
        await error_of(f"{ORIGIN}/sessions/other", 404, "session_not_found")
        image = [{"type": "image", "source": {"type": "url", "url": "http://x/y.png"}}]
        await error_of(
            base, 400, "unsupported_content", messages=[{"role": "user", "content": image}]
        )
        await error_of(
            base,
            503,
            "engine_error",
            extra_body={"sim": {"fault": {"kind": "status", "status": 503}}},
        )
        (await http.delete(f"/sessions/{created['session_id']}")).raise_for_status()
        await error_of(base, 410, "session_gone")


async def test_the_sdk_reads_an_error_in_a_stream_that_was_pinged(prompts: PromptBuilder):
    async with open_rollouts(prompts, sse_keepalive_s="0.05") as http:
        created = await create(http)
        async with sdk_of(http, created["anthropic_base_url"]) as sdk:
            sim = {"delay_s": 0.3, "fault": {"kind": "status", "status": 503}}
            stream = await sdk.messages.create(
                model="sim", max_tokens=TOKENS, messages=HI, stream=True, extra_body={"sim": sim}
            )
            with pytest.raises(anthropic.APIStatusError) as raised:
                [event async for event in stream]
        assert raised.value.type == "overloaded_error"


async def test_a_slow_stream_is_kept_alive_by_pings(prompts: PromptBuilder):
    async with open_rollouts(prompts, sse_keepalive_s="0.05") as http:
        session = (await create(http))["session_id"]
        body = {"messages": HI, "max_tokens": TOKENS, "stream": True, "sim": {"delay_s": 0.3}}
        response = await http.post(f"/sessions/{session}/v1/messages", json=body)
        assert response.headers["content-type"] == "text/event-stream; charset=utf-8"
        assert response.text.startswith('event: ping\ndata: {"type":"ping"}\n\n')
        assert response.text.endswith('event: message_stop\ndata: {"type":"message_stop"}\n\n')


async def test_a_wrong_base_url_is_told_the_right_one(prompts: PromptBuilder):
    async with open_rollouts(prompts) as http:
        created = await create(http)
        async with sdk_of(http, created["base_url"]) as sdk:
            with pytest.raises(anthropic.NotFoundError, match="anthropic_base_url"):
                await sdk.messages.create(model="sim", max_tokens=TOKENS, messages=HI)


async def test_clients_of_both_apis_share_a_session(prompts: PromptBuilder):
    async with open_rollouts(prompts) as http:
        created = await create(http)
        session = created["session_id"]
        first = message_of(await chat(http, session, "hi"))
        history: list[Any] = [user("hi")]
        blocks = []
        if first.get("reasoning_content"):
            thought = first["reasoning_content"]
            blocks.append({"type": "thinking", "thinking": thought, "signature": "x"})
        blocks.append({"type": "text", "text": first["content"]})
        history += [{"role": "assistant", "content": blocks}, user("and?")]
        async with sdk_of(http, created["anthropic_base_url"]) as sdk:
            await sdk.messages.create(model="sim", max_tokens=TOKENS, messages=history)
        read = (await http.get(f"/sessions/{session}")).json()
        assert len(read["records"]) == 2
        assert read["records"][1]["path"] == CHAT


async def test_a_refusal_has_the_form_of_the_path_that_was_asked(client: httpx.AsyncClient):
    for path, is_framed in (("v1/messages", True), ("v1/chat/completions", False)):
        refused = await client.post(f"/sessions/none/{path}", json={})
        told = json.loads(refused.content)
        assert ("type" in told) is is_framed
        assert told["error"]["code"] == "session_not_found"
        assert refused.headers["x-should-retry"] == "false"


async def test_the_sdk_lists_the_models_of_the_engine(prompts: PromptBuilder):
    async with open_rollouts(prompts) as http:
        created = await create(http)
        async with sdk_of(http, created["anthropic_base_url"]) as sdk:
            assert [model.id async for model in sdk.models.list()] == ["sim"]
