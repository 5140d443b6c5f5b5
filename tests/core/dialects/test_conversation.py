"""Whole conversations with the simulated engine in each of its dialects, in one process."""

from __future__ import annotations

import base64
import io
import json
from collections.abc import AsyncIterator
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np
import pytest

from sessions.client.answers import Answer
from sessions.client.samples import Sample, parse_samples
from sessions.tokens.prompts import PromptBuilder
from tests.support.rollouts import Rollouts, chat, create, message_of, open_parts

TOOLS = [
    {
        "type": "function",
        "function": {
            "name": "look_up",
            "parameters": {"type": "object", "properties": {"city": {"type": "string"}}},
        },
    }
]
LAYERS, TOPK = 3, 2
DIALECTS = ["sglang", "vllm"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """One session on an engine of one dialect."""

    dialect: str
    parts: Rollouts
    session: str

    async def records(self) -> list[dict[str, Any]]:
        reply = await self.parts.client.get(f"/sessions/{self.session}")
        found: list[dict[str, Any]] = reply.json()["records"]
        return found

    async def sample(self) -> Sample:
        reply = await self.parts.client.post(f"/sessions/{self.session}/samples")
        assert reply.status_code == 200, reply.text
        answer = Answer(status=200, headers=dict(reply.headers), body=reply.content)
        (sample,) = parse_samples(answer).samples
        return sample

    def prompt_in(self, record: dict[str, Any]) -> list[int]:
        request = record["request"]
        ids: list[int] = (
            request["input_ids"]
            if self.dialect == "sglang"
            else request["kv_transfer_params"]["prompt_token_ids"]
        )
        return ids

    def sampled_in(self, record: dict[str, Any]) -> list[int]:
        (choice,) = record["response"]["choices"]
        if self.dialect == "vllm":
            return list(choice["token_ids"])
        return [entry[1] for entry in choice["meta_info"]["output_token_logprobs"]]

    def rows_in(self, record: dict[str, Any]) -> np.ndarray:
        (choice,) = record["response"]["choices"]
        if self.dialect == "vllm":
            rows: np.ndarray = np.load(io.BytesIO(base64.b64decode(choice["routed_experts"])))
            return rows
        bare = base64.b64decode(choice["meta_info"]["routed_experts"])
        return np.frombuffer(bare, "<i4").reshape(-1, LAYERS, TOPK)


@pytest.fixture(params=DIALECTS)
async def place(prompts: PromptBuilder, request: pytest.FixtureRequest) -> AsyncIterator[Place]:
    """A session of which nothing is known but what the engine says."""
    engine = f"sim:?dialect={request.param}&layers={LAYERS}&topk={TOPK}&experts=8"
    settings = {"routing_replay": "1", "replay_layers": str(LAYERS)}
    async with open_parts(prompts, engine, **settings) as parts:
        session = (await create(parts.client))["session_id"]
        yield Place(dialect=request.param, parts=parts, session=session)


async def talk(place: Place, turns: int, **fields: object) -> None:
    """Turns with a call, its result and questions, each as an agent would send it."""
    messages: list[Any] = ["How is Oslo?"]
    for number in range(turns):
        reply = await chat(place.parts.client, place.session, *messages, tools=TOOLS, **fields)
        message = message_of(reply)
        messages.append(message)
        calls = message.get("tool_calls") or []
        messages += [
            {"role": "tool", "tool_call_id": call["id"], "content": "rain"} for call in calls
        ]
        messages += [] if calls else [f"And number {number}?"]


async def test_prompts_grow_by_what_was_sampled(place: Place):
    await talk(place, 5)
    records = await place.records()
    assert len(records) == 5
    for before, after in pairwise(records):
        history = place.prompt_in(before) + place.sampled_in(before)
        assert place.prompt_in(after)[: len(history)] == history


async def test_a_sample_has_the_rows_of_its_tokens(place: Place):
    await talk(place, 4)
    last = (await place.records())[-1]
    sample = await place.sample()
    assert sample.tokens.tolist() == place.prompt_in(last) + place.sampled_in(last)
    assert sample.status == "completed"
    assert sample.rollout_routed_experts is not None
    assert sample.rollout_routed_experts.tolist() == place.rows_in(last).tolist()
    told = "default" if place.dialect == "sglang" else None
    assert set(sample.weight_versions) == {told} - {None}


async def test_rows_are_stored_once_whatever_their_form(place: Place):
    await talk(place, 6)
    whole = sum(map(len, map(place.rows_in, await place.records()))) * LAYERS * TOPK
    assert place.parts.replay.stored_bytes < whole * (4 if place.dialect == "sglang" else 1)


async def test_a_stream_tells_what_the_next_turn_knows_again(place: Place):
    reply = await chat(place.parts.client, place.session, "hi", stream=True, tools=TOOLS)
    lines = [line[6:] for line in reply.text.splitlines() if line.startswith("data: ")]
    deltas = [json.loads(line)["choices"][0]["delta"] for line in lines[:-1]]
    message: dict[str, Any] = {"role": "assistant", "content": ""}
    calls: dict[int, dict[str, Any]] = {}
    for delta in deltas:
        message["content"] += delta.get("content") or ""
        thought = delta.get("reasoning") or delta.get("reasoning_content") or ""
        message["reasoning_content"] = message.get("reasoning_content", "") + thought
        for call in delta.get("tool_calls", []):
            if call["index"] in calls:
                calls[call["index"]]["function"]["arguments"] += call["function"]["arguments"]
            else:
                calls[call["index"]] = call
    message["tool_calls"] = list(calls.values())
    results = [{"role": "tool", "tool_call_id": c["id"], "content": "x"} for c in calls.values()]
    again = await chat(place.parts.client, place.session, "hi", message, *results, tools=TOOLS)
    assert again.status_code == 200, again.text
    assert len(await place.records()) == 2


@pytest.mark.parametrize(
    ("kind", "words"),
    [
        ("prompt_ids", "did not use the prompt"),
        ("token_count", "completion tokens"),
        ("no_token_count", "does not say completion_tokens"),
        ("no_meta_info", "no choices[0]."),
        ("no_choices", "no choices"),
    ],
)
async def test_a_reply_that_cannot_be_trusted_is_never_recorded(
    place: Place, kind: str, words: str
):
    fault = {"fault": {"kind": kind, "times": 1}}
    reply = await chat(place.parts.client, place.session, "hi", sim=fault)
    assert reply.status_code == 502
    assert words in reply.json()["error"]["message"]
    assert await place.records() == []
    message_of(await chat(place.parts.client, place.session, "hi", sim=fault))
    assert len(await place.records()) == 1


async def test_a_full_context_is_told_in_one_way(prompts: PromptBuilder):
    for dialect in DIALECTS:
        async with open_parts(prompts, f"sim:?context=64&dialect={dialect}") as parts:
            session = (await create(parts.client))["session_id"]
            reply = await chat(parts.client, session, "a " * 100)
            assert reply.status_code == 400
            assert reply.json()["error"]["code"] == "context_length_exceeded"


@pytest.mark.parametrize(("speaks", "is_set"), [("vllm", "sglang"), ("sglang", "vllm")])
async def test_a_dialect_that_is_set_wrongly_is_refused_and_never_recorded(
    prompts: PromptBuilder, speaks: str, is_set: str
):
    async with open_parts(prompts, f"sim:?dialect={speaks}", engine_dialect=is_set) as parts:
        session = (await create(parts.client))["session_id"]
        reply = await chat(parts.client, session, "hi")
        assert (reply.status_code, reply.headers["x-turn-recorded"]) == (502, "false")
        assert "does not know" in reply.json()["error"]["message"]
        assert (await parts.client.get(f"/sessions/{session}")).json()["records"] == []
