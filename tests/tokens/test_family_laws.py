"""The law of joining, held against every family: see docs/sessions.md#families."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sessions.errors.turns import RoleNotAppendableError
from sessions.tokens.comparison import compare
from sessions.tokens.families.declaration import ALL_ROLES, Family
from sessions.tokens.families.table import FAMILIES
from sessions.tokens.prompts import PromptBuilder
from sessions.tokens.templates import Template
from tests.support.families import canonical_reply, template_of, tokenizer_of_all

every_family = pytest.mark.parametrize("family", FAMILIES, ids=lambda family: family.name)
TOOLS = [{"type": "function", "function": {"name": "f", "parameters": {"type": "object"}}}]
USER = {"role": "user", "content": "hi"}
BUILDERS: dict[str, PromptBuilder] = {}


def builder_of(family: Family) -> PromptBuilder:
    if family.name not in BUILDERS:
        tokenizer = tokenizer_of_all()
        BUILDERS[family.name] = PromptBuilder(tokenizer, family, template_of(family))
    return BUILDERS[family.name]


# No "<", "[" or "]": no special token of any family is in it.
WORDS = st.text(
    st.characters(exclude_categories=["Cs"], exclude_characters="<[]\n\uff5c")
    | st.sampled_from("\n \t'é\u0301中🙂"),
    max_size=10,
)
ARGUMENTS = st.dictionaries(WORDS, st.none() | st.booleans() | st.integers() | WORDS, max_size=2)
IDS = st.sampled_from(["a", "b", "c"])
CALLS = st.lists(
    st.builds(
        lambda name, arguments: {
            "id": name,
            "type": "function",
            "function": {"name": "f", "arguments": json.dumps(arguments, ensure_ascii=False)},
        },
        IDS,
        ARGUMENTS,
    ),
    max_size=3,
    unique_by=lambda call: str(call["id"]),
)
REPLIES = st.builds(
    lambda content, reasoning, calls: {
        "role": "assistant",
        "content": content,
        "reasoning_content": reasoning,
        "tool_calls": calls,
    },
    # Not empty: a reply of nothing leaves nothing in the formats that write blocks.
    WORDS.map(lambda text: f"x{text}"),
    WORDS,
    CALLS,
)
OTHERS = st.builds(
    lambda role, content, called: {"role": role, "content": content, "tool_call_id": called},
    st.sampled_from(["user", "tool", "system"]),
    WORDS,
    IDS,
)
TURNS = st.lists(st.tuples(st.lists(OTHERS, max_size=4), REPLIES), min_size=1, max_size=3)


@dataclass(frozen=True)
class Asked:
    """What requests say besides their messages."""

    tools: list[Any] | None
    thinking: bool | None

    def kwargs_for(self, family: Family) -> dict[str, Any]:
        """Template kwargs that switch thinking where a family has a switch of its own."""
        if family.thinking is None or self.thinking is None:
            return {}
        return {"thinking": self.thinking}


ASKED = st.builds(
    Asked, tools=st.sampled_from([None, TOOLS]), thinking=st.sampled_from([None, True, False])
)


def appendable(family: Family, messages: Sequence[Mapping[str, Any]]) -> list[Any]:
    return [message for message in messages if message["role"] in family.append_roles]


def said_by(family: Family, reply: Mapping[str, Any], kwargs: Mapping[str, Any]) -> dict[str, Any]:
    """The reply without its reasoning where the model does not think."""
    silent = family.thinking is not None and not kwargs.get("thinking", family.thinking.default)
    return {**reply, "reasoning_content": ""} if silent else dict(reply)


@every_family
@settings(derandomize=True, deadline=None, max_examples=25)
@given(turns=TURNS, asked=ASKED)
def test_well_formed_turns_have_the_text_of_the_whole_conversation_and_no_mismatch(
    family: Family, turns: list[Any], asked: Asked
):
    builder = builder_of(family)
    tools, kwargs = asked.tools, asked.kwargs_for(family)
    history: list[Any] = [{"role": "system", "content": "s"}, USER]
    checkpoint: list[int] = []
    for appended, sampled in turns:
        new, reply = appendable(family, appended), said_by(family, sampled, kwargs)
        if checkpoint:
            prompt = builder.next(checkpoint, history[-1], new, tools, kwargs)
            kept = len(checkpoint) - family.max_trim_count
            assert prompt[:kept] == checkpoint[:kept]
        else:
            prompt = builder.first([*history, *new], tools, kwargs)
        history += new
        assert builder.tokenizer.decode(prompt) == builder.tokenizer.decode(
            builder.first(history, tools, kwargs)
        )
        text = canonical_reply(builder, history, reply, tools, kwargs)
        checkpoint = prompt + builder.tokenizer.encode(text)
        history.append(reply)
        whole = builder.whole(history, tools, kwargs)
        assert compare(whole, checkpoint, family, builder.tokenizer) == []


@every_family
@settings(derandomize=True, deadline=None, max_examples=25)
@given(
    history=st.lists(OTHERS | REPLIES, max_size=6),
    last=REPLIES,
    appended=st.lists(OTHERS | REPLIES, max_size=4),
    asked=ASKED,
)
def test_the_suffix_is_what_the_messages_add_to_any_real_history(
    family: Family,
    history: list[Any],
    last: dict[str, Any],
    appended: list[Any],
    asked: Asked,
):
    builder = builder_of(family)
    tools, kwargs = asked.tools, asked.kwargs_for(family)
    before = [USER, *appendable(family, history), last]
    new = appendable(family, appended)
    decode = builder.tokenizer.decode
    suffix = decode(builder.join([], last, new, tools, kwargs).added_ids)
    old_text = decode(builder.whole(before, tools, kwargs))
    assert decode(builder.first([*before, *new], tools, kwargs)) == old_text + suffix


ANY_IDS = st.lists(st.integers(0, 151_600), max_size=20)


@every_family
@settings(derandomize=True, deadline=None, max_examples=25)
@given(data=st.data(), checkpoint=ANY_IDS, appended=st.lists(OTHERS, max_size=3))
def test_a_prompt_starts_with_any_checkpoint_but_for_the_declared_trim(
    family: Family, data: st.DataObject, checkpoint: list[int], appended: list[Any]
):
    builder = builder_of(family)
    ends = [
        *family.shared_tokens,
        *([family.end_of_turn] if family.end_of_turn else []),
        "<|endoftext|>",
        "<|im_end|>",
        "<|user|>",
        "<|observation|>",
    ]
    end = data.draw(st.lists(st.sampled_from(ends), max_size=2))
    sampled = checkpoint + [builder.tokenizer.special_ids[text] for text in end]
    reply = {"role": "assistant", "content": "yo"}
    joint = builder.join(sampled, reply, appendable(family, appended))
    is_shared = bool(end) and end[-1] in family.shared_tokens
    assert len(sampled) - joint.kept_count == int(is_shared) <= family.max_trim_count
    bare = builder.join([], reply, appendable(family, appended)).added_ids
    gap = joint.added_ids[: len(joint.added_ids) - len(bare)]
    assert joint.added_ids[len(gap) :] == bare
    stands_last = end[-2:-1] if is_shared else end[-1:]
    is_over = bool(family.end_of_turn) and stands_last == [family.end_of_turn]
    assert builder.tokenizer.decode(gap) == (family.after_turn if is_over else "")


@every_family
def test_a_reply_cut_at_its_length_is_gone_on_from_where_it_ended(family: Family):
    builder = builder_of(family)
    reply = {"role": "assistant", "content": "a long story", "reasoning_content": "r"}
    prompt = builder.first([USER])
    spoken = builder.tokenizer.encode(canonical_reply(builder, [USER], reply, None, {}))
    suffix = builder.join([], reply, [USER]).added_ids
    for count in range(1, len(spoken) - 1):
        checkpoint = prompt + spoken[:count]
        assert builder.next(checkpoint, reply, [USER]) == checkpoint + suffix


@every_family
def test_the_other_shared_token_gives_way_to_what_the_template_writes(family: Family):
    builder = builder_of(family)
    reply = {"role": "assistant", "content": "yo", "reasoning_content": "r"}
    prompts = set()
    for text in family.shared_tokens:
        checkpoint = [1, builder.tokenizer.special_ids[text]]
        prompts.add(tuple(builder.next(checkpoint, reply, [USER])))
    assert len(prompts) == min(1, len(family.shared_tokens))


@every_family
def test_a_role_that_may_not_follow_a_reply_is_a_400(family: Family):
    builder = builder_of(family)
    reply = {"role": "assistant", "content": "yo"}
    for role in sorted(ALL_ROLES):
        appended = [USER, {"role": role, "content": "x"}]
        if role in family.append_roles:
            assert builder.next([1], reply, appended, offset=2)
            continue
        with pytest.raises(RoleNotAppendableError) as refused:
            builder.next([1], reply, appended, offset=2)
        assert (refused.value.status, refused.value.param) == (400, "messages[3].role")


class CountingTemplate:
    """Counts the characters that pass through a template, in and out, and its calls."""

    def __init__(self, inner: Template) -> None:
        self.inner = inner
        self.char_count = 0
        self.call_count = 0

    def render(
        self,
        messages: Sequence[Mapping[str, object]],
        tools: Sequence[object] | None,
        *,
        add_generation_prompt: bool,
        kwargs: Mapping[str, object],
        now: datetime,
    ) -> str:
        text = self.inner.render(
            messages, tools, add_generation_prompt=add_generation_prompt, kwargs=kwargs, now=now
        )
        self.call_count += 1
        self.char_count += len(text) + len(json.dumps(messages))
        return text


@every_family
def test_a_turn_costs_what_its_new_messages_cost_and_not_its_history(family: Family):
    template = CountingTemplate(template_of(family))
    builder = PromptBuilder(tokenizer_of_all(), family, template)
    arguments = json.dumps({"file": "x" * 10_000})
    calls = [{"id": "a", "type": "function", "function": {"name": "f", "arguments": arguments}}]
    reply = {"role": "assistant", "content": "y" * 10_000, "reasoning_content": "z" * 10_000}
    result = {"role": "tool", "tool_call_id": "a", "content": "3"}
    checkpoint = builder.first([USER], TOOLS)
    costs = []
    for _ in range(10):
        template.call_count = template.char_count = 0
        checkpoint = [*checkpoint, *range(10_000)]
        checkpoint = builder.next(checkpoint, {**reply, "tool_calls": calls}, [result], TOOLS)
        costs.append((template.call_count, template.char_count))
    assert set(costs) == {costs[0]}
    tools_char_count = len(builder.tokenizer.decode(builder.first([USER], TOOLS)))
    assert costs[0][0] == 2
    assert costs[0][1] < 2 * tools_char_count + 2_000
