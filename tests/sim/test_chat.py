"""The chat endpoint: replies in SGLang's form, experts, scripts, refusals, delays."""

import asyncio
import json
from base64 import b64decode
from typing import Any

import httpx
import pytest

from sessions.sim.chat import ChatEndpoint
from sessions.sim.experts import Layout
from sessions.sim.journal import Journal
from sessions.sim.options import SimOptions
from sessions.tokens.prompts import PromptBuilder, load_prompt_builder
from sessions.tokens.tokenizer import Tokenizer
from tests.sim.conftest import Chat

TOOLS = [{"type": "function", "function": {"name": "look_up", "parameters": {}}}]
STOP = 151645
FULL = {"logprobs": True, "return_meta_info": True}
EXPERTS = {"return_meta_info": True, "return_routed_experts": True, "logprobs": True}
PAGE = Layout(layers=4, topk=2, experts=128, seed=0, pad=1)


async def choice_of(chat: Chat, **fields: object) -> dict[str, Any]:
    reply = await chat(**fields)
    assert reply.status_code == 200, reply.text
    found: dict[str, Any] = reply.json()["choices"][0]
    return found


def ids_of(choice: dict[str, Any]) -> list[int]:
    return [entry[1] for entry in choice["meta_info"]["output_token_logprobs"]]


def keys(value: dict[str, Any]) -> str:
    return " ".join(value)


async def test_a_reply_has_sglangs_form(chat: Chat, tokenizer: Tokenizer):
    reply = await chat(input_ids=[1, 2, 3], model="m", return_routed_experts=True, **FULL)
    assert reply.headers["content-type"] == "application/json"
    document = reply.json()
    assert keys(document) == "id object created model choices usage metadata"
    assert (document["object"], document["model"]) == ("chat.completion", "m")
    assert document["metadata"] == {"weight_version": "default"}
    (choice,) = document["choices"]
    assert keys(choice) == "index message logprobs finish_reason matched_stop meta_info"
    assert keys(choice["message"]) == "role content reasoning_content tool_calls"
    assert choice["message"]["tool_calls"] is None
    assert (choice["finish_reason"], choice["matched_stop"]) == ("stop", STOP)
    meta_info = choice["meta_info"]
    assert keys(meta_info) == (
        "id finish_reason prompt_tokens weight_version num_retractions e2e_latency "
        "output_token_logprobs completion_tokens cached_tokens routed_experts"
    )
    assert meta_info["id"] == document["id"]
    assert meta_info["finish_reason"] == {"type": "stop", "matched": STOP}
    assert (meta_info["prompt_tokens"], meta_info["cached_tokens"]) == (3, 0)
    ids = ids_of(choice)
    assert meta_info["completion_tokens"] == len(ids)
    assert document["usage"] == {
        "prompt_tokens": 3,
        "total_tokens": 3 + len(ids),
        "completion_tokens": len(ids),
        "prompt_tokens_details": None,
    }
    texts = [entry[2] for entry in meta_info["output_token_logprobs"]]
    assert "".join(texts) == tokenizer.decode(ids)
    content = choice["logprobs"]["content"]
    assert [entry["token"] for entry in content] == texts
    assert [entry["logprob"] for entry in content] == [
        entry[0] for entry in meta_info["output_token_logprobs"]
    ]
    assert bytes(content[-1]["bytes"]) == b"<|im_end|>"


async def test_a_reply_has_only_what_was_asked_for(chat: Chat):
    document = (await chat()).json()
    choice = document["choices"][0]
    assert keys(choice) == "index message logprobs finish_reason matched_stop"
    assert choice["logprobs"] is None
    assert "sglext" not in document
    meta_info = (await choice_of(chat, return_meta_info=True))["meta_info"]
    assert "output_token_logprobs" not in meta_info
    choice = await choice_of(
        chat, input_ids=[5, 6], return_prompt_token_ids=True, return_token_ids=True, max_tokens=3
    )
    assert choice["prompt_token_ids"] == [5, 6]
    assert len(choice["response_token_ids"]) == 3
    choice = await choice_of(chat, logprobs=True, top_logprobs=2)
    entry = choice["logprobs"]["content"][0]
    assert [each["token"] for each in entry["top_logprobs"]] == [entry["token"]]


async def test_tool_calls_have_an_index_and_change_both_finish_reasons(chat: Chat):
    choice = await choice_of(chat, tools=TOOLS, **FULL)
    (call,) = choice["message"]["tool_calls"]
    assert (call["index"], call["type"], call["id"][:5]) == (0, "function", "call_")
    assert call["function"] == {"name": "look_up", "arguments": "{}"}
    assert choice["finish_reason"] == "tool_calls"
    assert choice["meta_info"]["finish_reason"] == {"type": "tool_calls", "matched": None}
    assert ids_of(choice)[-1] == STOP


async def test_content_is_empty_and_never_null(chat: Chat):
    script = {"content": "", "tool_calls": [{"name": "look_up"}], "reasoning": None}
    message = (await choice_of(chat, tools=TOOLS, sim=script))["message"]
    assert message["content"] == ""
    assert message["reasoning_content"] is None
    assert len(message["tool_calls"]) == 1


async def test_a_limit_ends_with_length(chat: Chat):
    choice = await choice_of(chat, max_tokens=4, **FULL)
    assert choice["finish_reason"] == "length"
    assert choice["meta_info"]["finish_reason"] == {"type": "length", "length": 4}
    assert len(ids_of(choice)) == 4
    assert STOP not in ids_of(choice)


async def test_an_abort_can_be_scripted(chat: Chat):
    choice = await choice_of(chat, sim={"finish_reason": "abort"}, **FULL)
    assert choice["finish_reason"] == "abort"
    assert choice["meta_info"]["finish_reason"]["type"] == "abort"


async def test_seeded_replies_are_equal_and_others_are_not(chat: Chat):
    fields = {"tools": TOOLS, **FULL}

    async def said(**more: object) -> tuple[object, list[int]]:
        choice = await choice_of(chat, **fields, **more)
        return choice["message"], ids_of(choice)

    assert await said(seed=3) == await said(seed=3)
    assert (await said())[1] != (await said())[1]


async def test_several_choices_differ_and_count_together(chat: Chat):
    document = (await chat(n=3, seed=1, **EXPERTS)).json()
    choices = document["choices"]
    assert [choice["index"] for choice in choices] == [0, 1, 2]
    assert len({tuple(ids_of(choice)) for choice in choices}) == 3
    assert document["usage"]["completion_tokens"] == sum(len(ids_of(each)) for each in choices)
    assert all(choice["meta_info"]["routed_experts"] for choice in choices)


@pytest.fixture(scope="module")
def qwen3() -> PromptBuilder:
    return load_prompt_builder("pkg:qwen3", "qwen3")


@pytest.mark.parametrize("client", ["sim:", "sim:?thinking=empty"], indirect=True)
async def test_ten_turns_are_what_the_template_makes_of_their_messages(
    chat: Chat, qwen3: PromptBuilder
):
    parameters = {"type": "object", "properties": {"city": {"type": "string"}}}
    tools = [
        {"type": "function", "function": {"name": name, "parameters": parameters}}
        for name in ("look_up", "tell")
    ]
    messages: list[dict[str, Any]] = [{"role": "user", "content": "How is it in Århus?"}]
    prompt = qwen3.first(messages, tools)
    reasons = []
    for _ in range(10):
        choice = await choice_of(chat, messages=messages, input_ids=prompt, tools=tools, **FULL)
        message, checkpoint = choice["message"], prompt + ids_of(choice)
        reasons.append(choice["finish_reason"])
        answers: list[dict[str, Any]] = [
            {"role": "tool", "content": '{"sky": "grey"}', "tool_call_id": call["id"]}
            for call in message["tool_calls"] or []
        ] or [{"role": "user", "content": "And in Oslo?"}]
        messages = [*messages, message]
        assert qwen3.whole(messages, tools)[: len(checkpoint)] == checkpoint
        prompt = qwen3.next(checkpoint, message, answers, tools)
        messages += answers
    assert reasons == ["tool_calls", "stop"] * 5


async def test_experts_are_the_rows_of_all_tokens_but_the_last(chat: Chat):
    prompt = [9, 8, 7]
    choice = await choice_of(chat, input_ids=prompt, **EXPERTS)
    rows = b64decode(choice["meta_info"]["routed_experts"], validate=True)
    assert rows == PAGE.raw_rows((prompt + ids_of(choice))[:-1])
    assert len(rows) == (3 + len(ids_of(choice)) - 1) * 4 * 2 * 4


async def test_rows_of_earlier_tokens_are_stable_from_turn_to_turn(chat: Chat):
    prompt = [9, 8, 7]
    first = await choice_of(chat, input_ids=prompt, **EXPERTS)
    prompt = prompt + ids_of(first) + [198, 151644]
    second = await choice_of(chat, input_ids=prompt, **EXPERTS)
    other = await choice_of(chat, input_ids=[9, 8, 6], **EXPERTS)
    rows = [b64decode(choice["meta_info"]["routed_experts"]) for choice in (first, second, other)]
    assert rows[1].startswith(rows[0])
    assert not rows[2].startswith(rows[0][:96])


async def test_experts_can_start_later(chat: Chat):
    prompt = [9, 8, 7, 6]
    choice = await choice_of(chat, input_ids=prompt, routed_experts_start_len=3, **EXPERTS)
    rows = b64decode(choice["meta_info"]["routed_experts"])
    assert rows == PAGE.raw_rows((prompt + ids_of(choice))[:-1], 3)
    assert (await chat(input_ids=prompt, routed_experts_start_len=4, **EXPERTS)).status_code == 200
    refused = await chat(input_ids=prompt, routed_experts_start_len=5, **EXPERTS)
    assert refused.status_code == 400


async def test_experts_stand_in_sglext_without_metadata(chat: Chat):
    document = (await chat(return_routed_experts=True)).json()
    assert list(document)[-1] == "sglext"
    assert document["sglext"]["routed_experts"]
    document = (await chat(**EXPERTS)).json()
    assert "sglext" not in document


@pytest.mark.parametrize("client", ["sim:?copies=both"], indirect=True)
async def test_experts_can_stand_in_both_places(chat: Chat):
    document = (await chat(**EXPERTS)).json()
    found = document["choices"][0]["meta_info"]["routed_experts"]
    assert document["sglext"] == {"routed_experts": found}
    assert "sglext" not in (await chat(sim={"copies": "one"}, **EXPERTS)).json()


@pytest.mark.parametrize("client", ["sim:?layers=3&topk=1&pad=5&experts=7&seed=9"], indirect=True)
async def test_the_shape_of_rows_is_an_option(chat: Chat):
    layout = Layout(layers=3, topk=1, experts=7, seed=9, pad=5)
    choice = await choice_of(chat, input_ids=[1], **EXPERTS)
    rows = b64decode(choice["meta_info"]["routed_experts"])
    assert rows == layout.raw_rows([1, *ids_of(choice)][:-1])
    choice = await choice_of(chat, input_ids=[1], sim={"pad": 2}, **EXPERTS)
    assert len(b64decode(choice["meta_info"]["routed_experts"])) == len(ids_of(choice)) * 3 * 2 * 4


@pytest.mark.parametrize("mib", [0.001, 0.5, 3])
async def test_a_body_can_be_large_at_few_tokens(chat: Chat, mib: float):
    choice = await choice_of(chat, input_ids=[1, 2], max_tokens=3, sim={"blob_mib": mib}, **EXPERTS)
    text = choice["meta_info"]["routed_experts"]
    assert mib * (1 << 20) <= len(text) <= mib * (1 << 20) + 4 * 4 * 2 * 4 * 2
    assert len(b64decode(text)) % (4 * 4 * 2 * 4) == 0


async def test_the_loop_turns_while_a_large_body_is_sent(chat: Chat):
    turns = 0
    asked = asyncio.create_task(chat(sim={"blob_mib": 8}, max_tokens=4, **EXPERTS))
    while not asked.done():
        turns += 1
        await asyncio.sleep(0)
    assert turns > 8 * 8  # pieces of 128 KiB


def test_widths_in_use_are_bounded(tokenizer: Tokenizer):
    endpoint = ChatEndpoint(SimOptions(), tokenizer, Journal(0))
    first = endpoint._layout(1)
    for pad in range(2, 9):
        endpoint._layout(pad)
        assert endpoint._layout(1) is first
    endpoint._layout(9)
    assert len(endpoint._layouts) == 8
    assert endpoint._layout(1) is first


async def test_a_prompt_is_rendered_without_ids(chat: Chat, tokenizer: Tokenizer):
    choice = await choice_of(chat, return_prompt_token_ids=True)
    assert tokenizer.decode(choice["prompt_token_ids"]) == (
        "<|im_start|>user\nhello<|im_end|>\n<|im_start|>assistant\n"
    )


@pytest.mark.parametrize("client", ["sim:?context=64"], indirect=True)
async def test_overflow_is_a_flat_400(chat: Chat):
    reply = await chat(input_ids=[1] * 64)
    assert reply.status_code == 400
    assert reply.json() == {
        "object": "error",
        "message": "The input (64 tokens) is longer than the model's context length (64 tokens).",
        "type": "BadRequestError",
        "param": None,
        "code": 400,
    }
    reply = await chat(input_ids=[1] * 60, max_tokens=5)
    assert "maximum context length of 64" in reply.json()["message"]
    choice = await choice_of(chat, input_ids=[1] * 60, max_tokens=4)
    assert choice["finish_reason"] == "length"
    assert (await choice_of(chat, input_ids=[1] * 60, **FULL))["meta_info"][
        "completion_tokens"
    ] == 4


async def test_refusals_are_flat(client: httpx.AsyncClient, chat: Chat):
    reply = await client.post("/v1/chat/completions", content=b"{")
    assert reply.status_code == 400
    assert list(reply.json()) == ["object", "message", "type", "param", "code"]
    assert (await chat(input_ids=[True])).status_code == 400
    assert (await chat(sim={"fauld": 1})).status_code == 400
    assert (await chat(stream=True, return_meta_info=True)).status_code == 400


async def test_a_stream_is_the_reply_in_events(chat: Chat):
    fields = {"seed": 4, "tools": TOOLS, "stream_options": {"include_usage": True}}
    whole = (await chat(**fields)).json()
    reply = await chat(stream=True, **fields)
    assert reply.headers["content-type"].startswith("text/event-stream")
    events = reply.text.split("\n\n")
    assert events[-2:] == ["data: [DONE]", ""]
    chunks = [json.loads(event.removeprefix("data: ")) for event in events[:-2]]
    deltas = [chunk["choices"][0]["delta"] for chunk in chunks[:-1]]
    message = whole["choices"][0]["message"]
    assert "".join(delta.get("content", "") for delta in deltas) == message["content"]
    assert chunks[-2]["choices"][0]["finish_reason"] == "tool_calls"
    assert chunks[-1]["usage"] == whole["usage"]


@pytest.mark.parametrize("client", ["sim:?latency_s=3000&token_s=3000"], indirect=True)
async def test_a_reply_takes_the_time_of_the_options_or_the_script(
    client: httpx.AsyncClient, chat: Chat
):
    async def waits(**fields: object) -> bool:
        await client.delete("/sim/requests")
        asked = asyncio.create_task(chat(**fields))
        for _ in range(50):
            await asyncio.sleep(0)  # no I/O here: a reply that waits for nothing is there by now
        assert (await client.get("/sim/requests")).json()["seen"] == 1
        waiting = not asked.done()
        asked.cancel()
        await asyncio.wait([asked])
        return waiting

    assert await waits(max_tokens=0)
    assert await waits(sim={"delay_s": 0})
    assert await waits(sim={"fault": {"kind": "status"}})
    assert not await waits(max_tokens=0, sim={"delay_s": 0})


async def test_a_reply_comes_after_its_time(chat: Chat):
    document = (await chat(return_meta_info=True, sim={"delay_s": 0.02})).json()
    assert document["choices"][0]["meta_info"]["e2e_latency"] >= 0.02


async def test_a_fault_of_the_document_reaches_the_client(chat: Chat):
    async def raw(kind: str, **fields: object) -> str:
        reply = await chat(sim={"fault": {"kind": kind, **fields}}, **EXPERTS)
        assert reply.status_code == 200
        assert int(reply.headers["content-length"]) == len(reply.content)
        return reply.text

    assert '"choices":[]' in await raw("no_choices")
    assert '"content":null' in await raw("null_content")
    assert '"content":"\\ud83d' in await raw("lone_surrogate")
    assert "[NaN," in await raw("nan_logprobs")
    assert "!" in json.loads(await raw("bad_base64"))["choices"][0]["meta_info"]["routed_experts"]
    with pytest.raises(json.JSONDecodeError):
        json.loads(await raw("broken_json"))


@pytest.mark.parametrize("by", [-1, 2])
async def test_rows_can_be_wrong(chat: Chat, by: int):
    fault = {"kind": "rows", "by": by}
    choice = await choice_of(chat, input_ids=[1], sim={"fault": fault}, **EXPERTS)
    rows = b64decode(choice["meta_info"]["routed_experts"])
    assert len(rows) // 32 == len(ids_of(choice)) + by


async def test_a_status_can_be_scripted_and_happen_once(chat: Chat):
    fault = {
        "kind": "status",
        "status": 429,
        "body": {"slow": "down"},
        "headers": [["Retry-After", "1"], ["x-a", "1"], ["x-a", "2"]],
        "times": 1,
        "key": "t",
    }
    reply = await chat(sim={"fault": fault})
    assert (reply.status_code, reply.json()) == (429, {"slow": "down"})
    assert reply.headers.get_list("x-a") == ["1", "2"]
    assert (await chat(sim={"fault": fault})).status_code == 200


async def test_a_scripted_length_replaces_the_true_one(chat: Chat):
    fault = {"kind": "status", "text": "abc", "headers": [["Content-Length", "3"]]}
    reply = await chat(sim={"fault": fault})
    assert reply.headers.get_list("content-length") == ["3"]
    assert reply.headers["content-type"] == "text/plain; charset=utf-8"


async def test_streams_take_status_faults_only(chat: Chat):
    assert (await chat(stream=True, sim={"fault": {"kind": "status"}})).status_code == 500
    assert (await chat(stream=True, sim={"fault": {"kind": "no_choices"}})).status_code == 400


async def test_wire_faults_need_the_own_server(chat: Chat):
    reply = await chat(sim={"fault": {"kind": "cut"}})
    assert reply.status_code == 501
    assert "cut" in reply.json()["message"]
