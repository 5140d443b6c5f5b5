"""A session of every family through the whole application, on an engine that says what fits."""

from __future__ import annotations

import json
from typing import Any

import pytest

from sessions.tokens.families.declaration import Family
from sessions.tokens.families.table import FAMILIES
from sessions.tokens.prompts import PromptBuilder
from tests.support.engines import sampled_document
from tests.support.families import canonical_reply, template_of, tokenizer_of_all
from tests.support.raw_engine import Answer, Asked, raw_engine
from tests.support.raw_replies import length_reply
from tests.support.rollouts import chat, create, message_of, open_rollouts

TOOLS = [{"type": "function", "function": {"name": "f", "parameters": {"type": "object"}}}]
CALLS = [
    {"id": name, "type": "function", "function": {"name": "f", "arguments": '{"x": "y"}'}}
    for name in ("a", "b")
]
RESULTS = [{"role": "tool", "tool_call_id": name, "content": name * 3} for name in ("b", "a")]
# In turn: a call, an answer, an answer that is cut at its length.
FINISHES = ["tool_calls", "stop", "length", "stop"]


def reply_to(builder: PromptBuilder, asked: Asked) -> Answer:
    """The reply that is due, sampled as the model of a family would."""
    body = json.loads(asked.body)
    turn = sum(message["role"] == "assistant" for message in body["messages"])
    reply: dict[str, Any] = {
        "role": "assistant",
        "content": f"so it is {turn}",
        "reasoning_content": "hm",
        "tool_calls": CALLS if FINISHES[turn] == "tool_calls" else None,
    }
    kwargs = body.get("chat_template_kwargs", {})
    text = canonical_reply(builder, body["messages"], reply, body["tools"], kwargs)
    shared = builder.family.shared_tokens
    if shared and reply["tool_calls"]:
        text = text.removesuffix(shared[0]) + shared[1]
    ids = builder.tokenizer.encode(text)
    ids = ids[:3] if FINISHES[turn] == "length" else ids
    document = sampled_document(ids, finish_reason=FINISHES[turn], **reply)
    return Answer(length_reply(json.dumps(document).encode()))


@pytest.mark.parametrize("family", FAMILIES, ids=lambda family: family.name)
async def test_turns_of_a_family_are_joined_and_recorded_without_a_mismatch(family: Family):
    builder = PromptBuilder(tokenizer_of_all(), family, template_of(family))
    thinks = {"thinking": True} if family.thinking else {}
    fields: dict[str, Any] = {"tools": TOOLS, "chat_template_kwargs": thinks}
    async with (
        raw_engine(lambda asked: reply_to(builder, asked)) as engine,
        open_rollouts(builder, f"http://127.0.0.1:{engine.port}") as client,
    ):
        session = (await create(client))["session_id"]
        told: list[Any] = ["hi"]
        checkpoint: list[int] = []
        for finish in FINISHES[:3]:
            told.append(message_of(await chat(client, session, *told, **fields)))
            found = (await client.get(f"/sessions/{session}")).json()
            assert found["metadata"]["max_trim_tokens"] == family.max_trim_count
            if finish != "length":  # a reply without its end is not what a template writes
                assert found["metadata"]["tito_session_mismatch"] == []
            kept = max(0, len(checkpoint) - family.max_trim_count)
            assert found["records"][-1]["request"]["input_ids"][:kept] == checkpoint[:kept]
            checkpoint = found["metadata"]["accumulated_token_ids"]
            told += RESULTS if finish == "tool_calls" else ["more"]
        samples = await client.post(f"/sessions/{session}/samples")
        assert samples.status_code == 200, samples.text
        late = {"role": "system", "content": "x"}
        status = (await chat(client, session, *told, late, **fields)).status_code
        assert status == (200 if "system" in family.append_roles else 400)
