"""Trees of every family: branches from one reply, whatever joining does to its last token."""

from __future__ import annotations

import json
from typing import Any

import pytest

from sessions.client.answers import Answer
from sessions.client.samples import parse_samples
from sessions.engine.engine import EngineReply
from sessions.errors.turns import RoleNotAppendableError
from sessions.tokens.families.declaration import Family
from sessions.tokens.families.table import FAMILIES
from sessions.tokens.prompts import PromptBuilder
from tests.support.desk import Desk, body_of
from tests.support.engines import json_reply, sampled_document
from tests.support.families import canonical_reply, template_of, tokenizer_of_all

TOOLS = [{"type": "function", "function": {"name": "f", "parameters": {"type": "object"}}}]
CALLS = [{"id": "a", "type": "function", "function": {"name": "f", "arguments": '{"x": "y"}'}}]
RESULT = {"role": "tool", "tool_call_id": "a", "content": "aaa"}
SYSTEM = {"role": "system", "content": "be kind"}


def replying(builder: PromptBuilder, request: dict[str, Any]) -> EngineReply:
    """Calls a tool when it is greeted, else talks; sampled as the model of a family would."""
    messages = request["messages"]
    reply: dict[str, Any] = {
        "role": "assistant",
        "content": f"so it is {len(messages)}",
        "reasoning_content": "hm",
        "tool_calls": CALLS if messages[-1]["content"] == "hi" else None,
    }
    kwargs = request.get("chat_template_kwargs", {})
    text = canonical_reply(builder, messages, reply, request["tools"], kwargs)
    shared = builder.family.shared_tokens
    if shared and reply["tool_calls"]:
        text = text.removesuffix(shared[0]) + shared[1]
    finish = "tool_calls" if reply["tool_calls"] else "stop"
    return json_reply(
        sampled_document(builder.tokenizer.encode(text), finish_reason=finish, **reply)
    )


@pytest.mark.parametrize("family", FAMILIES, ids=lambda family: family.name)
async def test_branches_of_one_reply_are_joined_recorded_and_become_samples(family: Family):
    builder = PromptBuilder(tokenizer_of_all(), family, template_of(family))
    fields: dict[str, Any] = {"tools": TOOLS}
    if family.thinking:
        fields["chat_template_kwargs"] = {"thinking": True}
    desk = Desk(builder, lambda request: replying(builder, request))
    session = desk.open(mode="tree")

    async def say(*messages: Any) -> Any:  # noqa: ANN401 - JSON
        reply = await desk.chat(session, *messages, **fields)
        return json.loads(await body_of(reply))["choices"][0]["message"]

    greeted = ["hi", await say("hi")]
    answered = [*greeted, RESULT, await say(*greeted, RESULT)]
    await say(*answered, "more")
    await say(*greeted, "never mind")
    # Roles are checked in what a request adds: a root takes any, and so does what follows it.
    kind = [SYSTEM, "hello", await say(SYSTEM, "hello")]
    await say(*kind, "more")
    if "system" not in family.append_roles:
        with pytest.raises(RoleNotAppendableError):
            await say(*answered, SYSTEM)

    read = await desk.read(session)
    nodes = read["metadata"]["tree"]["nodes"]
    assert [node["parent"] for node in nodes] == [None, "n0", "n1", "n0", None, "n4"]
    tokens: dict[str, list[int]] = {}
    for node, record in zip(nodes, read["records"], strict=True):
        prompt = record["request"]["input_ids"]
        meta = record["response"]["choices"][0]["meta_info"]
        before = tokens.get(node["parent"], [])
        kept = max(0, len(before) - family.max_trim_count)
        assert prompt[:kept] == before[:kept]
        tokens[node["id"]] = [*prompt, *(entry[1] for entry in meta["output_token_logprobs"])]

    reply = await desk.core.samples(session, desk.request(b""))
    found = parse_samples(Answer(status=200, headers={}, body=await body_of(reply)))
    names = [sample.metadata["leaf"]["node_id"] for sample in found.samples]
    assert names == ["n2", "n5", "n3"]
    for name, sample in zip(names, found.samples, strict=True):
        assert sample.tokens.tolist() == tokens[name]
        assert sample.metadata["tito_session_mismatch"] == []
    first = nodes[0]["completion_span"]
    shared = first[1] - first[0] - family.max_trim_count
    assert found.samples[0].loss_mask[:shared].tolist() == [1] * shared
    assert found.samples[2].loss_mask[:shared].tolist() == [0] * shared
    assert found.samples[2].loss_mask.sum() > 0
    await desk.core.close()
