import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import datetime
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sessions.errors.client_visible import RequestError, UnprocessableError
from sessions.errors.turns import (
    BadTemplateKwargsError,
    RoleNotAppendableError,
    UnrenderableMessageError,
    UnsupportedContentError,
)
from sessions.errors.unseen import SettingsError
from sessions.tokens.comparison import compare
from sessions.tokens.families.declaration import Family
from sessions.tokens.families.table import DEFAULT, family_of
from sessions.tokens.prompts import PromptBuilder
from sessions.tokens.templates import ChatTemplate, Template, read_shipped_template
from sessions.tokens.tokenizer import Tokenizer
from tests.support.conversations import OTHERS, TURNS, play
from tests.support.tokenizers import CHATML, byte_tokenizer

USER = {"role": "user", "content": "hi"}
REPLY = {"role": "assistant", "content": "yo"}
TOOLS = [{"type": "function", "function": {"name": "f", "parameters": {"type": "object"}}}]
CALL = {"id": "c1", "type": "function", "function": {"name": "f", "arguments": '{"é": 1}'}}
RESULT = {"role": "tool", "tool_call_id": "c1", "content": "3"}
CHAT = family_of("qwen3")


def small_builder(template: Template | str, family: Family = DEFAULT) -> PromptBuilder:
    """A builder with one token for each byte ."""
    if isinstance(template, str):
        template = ChatTemplate(template, name="t")
    return PromptBuilder(byte_tokenizer(*CHATML), family, template)


PLAIN = (
    "{% for m in messages %}[{{ m.role }}:{{ m.content }}]{% endfor %}"
    "{% if add_generation_prompt %}[assistant:{% endif %}"
)


# The law: conversations of canonical samples.


@settings(derandomize=True, deadline=None, max_examples=150)
@given(turns=TURNS, tools=st.sampled_from([None, TOOLS]))
def test_turns_of_canonical_samples_have_the_tokens_of_the_whole_conversation(
    builder: PromptBuilder, turns: list[Any], tools: list[Any] | None
):
    history, checkpoint = play(builder, turns, tools)
    whole = builder.whole(history, tools)
    assert checkpoint + builder.tokenizer.encode("\n") == whole
    assert compare(whole, checkpoint, builder.family, builder.tokenizer) == []


@settings(derandomize=True, deadline=None, max_examples=75)
@given(turns=TURNS, tools=st.sampled_from([None, TOOLS]))
def test_turns_without_thinking_have_the_text_of_the_whole_conversation(
    builder: PromptBuilder, turns: list[Any], tools: list[Any] | None
):
    history, checkpoint = play(builder, turns, tools, thinking=False)
    whole = builder.whole(history, tools)
    assert builder.tokenizer.decode(checkpoint) + "\n" == builder.tokenizer.decode(whole)
    assert compare(whole, checkpoint, builder.family, builder.tokenizer) == []


@settings(derandomize=True, deadline=None, max_examples=75)
@given(turns=TURNS, tools=st.sampled_from([None, TOOLS]))
def test_a_prompt_starts_with_the_checkpoint_whatever_the_template_thinks_of_history(
    native_builder: PromptBuilder, turns: list[Any], tools: list[Any] | None
):
    play(native_builder, turns, tools)


@settings(derandomize=True, deadline=None, max_examples=75)
@given(checkpoint=st.lists(st.integers(0, 151935), min_size=1), appended=st.lists(OTHERS))
def test_a_prompt_starts_with_any_checkpoint(
    builder: PromptBuilder, checkpoint: list[int], appended: list[Any]
):
    assert builder.next(checkpoint, REPLY, appended)[: len(checkpoint)] == checkpoint


# The boundary.


def suffix_of(builder: PromptBuilder, checkpoint: list[int]) -> str:
    prompt = builder.next(checkpoint, REPLY, [USER])
    assert prompt[: len(checkpoint)] == checkpoint
    return builder.tokenizer.decode(prompt[len(checkpoint) :])


def test_the_newline_after_a_sampled_turn_is_put_in(builder: PromptBuilder):
    text = "<|im_start|>user\nhi<|im_end|>\n<|im_start|>assistant\n"
    assert suffix_of(builder, [0, 151645]) == "\n" + text


def test_nothing_is_put_in_after_a_turn_that_was_cut(builder: PromptBuilder):
    text = "<|im_start|>user\nhi<|im_end|>\n<|im_start|>assistant\n"
    assert suffix_of(builder, [151645, 0]) == text


def test_the_default_family_puts_nothing_in(native_builder: PromptBuilder):
    text = "<|im_start|>user\nhi<|im_end|>\n<|im_start|>assistant\n"
    assert suffix_of(native_builder, [0, 151645]) == text


def test_a_token_that_ends_a_turn_and_opens_a_message_stands_there_once():
    builder = small_builder(
        PLAIN, replace(DEFAULT, shared_tokens=("<think>", "</think>"), max_trim_count=1)
    )
    opener = builder.tokenizer.special_ids["</think>"]
    prompt = builder.next([1, opener, opener], REPLY, [USER])
    assert prompt[:3] == [1, opener, *b"["]
    assert builder.next([1, 2], REPLY, [USER])[:3] == [1, 2, *b"["]


def test_the_exact_history_again_asks_for_another_reply(builder: PromptBuilder):
    prompt = builder.next([151645], REPLY, [])
    assert builder.tokenizer.decode(prompt) == "<|im_end|>\n<|im_start|>assistant\n"


def test_the_checkpoint_is_not_changed(builder: PromptBuilder):
    checkpoint = (1, 151645)
    assert builder.next(checkpoint, REPLY, [USER])[:2] == [1, 151645]
    assert checkpoint == (1, 151645)


def test_thinking_that_is_switched_off_shows_in_every_prompt(builder: PromptBuilder):
    kwargs = {"enable_thinking": False}
    end = builder.tokenizer.encode("<think>\n\n</think>\n\n")
    assert builder.first([USER], None, kwargs)[-len(end) :] == end
    assert builder.next([151645], REPLY, [USER], None, kwargs)[-len(end) :] == end


# What rendering a turn costs.


class CountingTemplate:
    """Counts the characters that pass through a template."""

    def __init__(self, inner: Template) -> None:
        self.inner = inner
        self.count = 0

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
        self.count += len(text)
        return text


def test_a_later_prompt_costs_what_its_new_messages_cost_and_not_its_history(qwen3: Tokenizer):
    template = CountingTemplate(read_shipped_template("qwen3"))
    builder = PromptBuilder(qwen3, CHAT, template)
    call = {**CALL, "function": {"name": "f", "arguments": json.dumps({"file": "x" * 10_000})}}
    reply = {**REPLY, "content": "y" * 10_000, "tool_calls": [call]}
    history: list[Any] = [{"role": "system", "content": "z" * 10_000}, USER]
    checkpoint = builder.first(history, TOOLS)
    costs = []
    for _ in range(20):
        checkpoint = [*checkpoint, 151645]
        template.count = 0
        checkpoint = builder.next(checkpoint, reply, [RESULT], TOOLS)
        costs.append(template.count)
    assert len(set(costs)) == 1
    tool_chars = len(builder.tokenizer.decode(builder.first([USER], TOOLS)))
    assert costs[0] < 2 * tool_chars + 500


# What templates need and refuse.


def test_a_result_finds_the_call_it_answers():
    builder = small_builder(
        "{% for m in messages %}{% if m.role == 'tool' %}"
        "{{ messages[loop.index0 - 1].tool_calls[0].function.name }}={{ m.content }};"
        "{% endif %}{% endfor %}"
    )
    prompt = builder.next([], {**REPLY, "tool_calls": [CALL]}, [RESULT])
    assert builder.tokenizer.decode(prompt) == "f=3;"


def test_arguments_that_a_template_cannot_render_do_not_stop_the_next_turn():
    builder = small_builder(
        PLAIN.replace(
            "{% endfor %}",
            "{% for c in m.tool_calls or [] %}{{ c.function.arguments|items|list }}{% endfor %}"
            "{% endfor %}",
        )
    )
    broken = {**CALL, "function": {"name": "f", "arguments": '{"a": '}}
    assert builder.next([], {**REPLY, "tool_calls": [broken]}, [RESULT])
    with pytest.raises(UnrenderableMessageError) as refused:
        builder.first([USER, {**REPLY, "tool_calls": [broken]}, RESULT])
    assert refused.value.param == "messages[1]"


@pytest.mark.parametrize(
    "guard",
    [
        "{% if messages[0].role == 'system' %}{{ raise_exception('no system') }}{% endif %}",
        "{% if messages[1].role != 'user' %}{{ raise_exception('no question') }}{% endif %}",
    ],
    ids=["knows no system message", "wants system and user first"],
)
def test_a_template_that_is_choosy_about_the_first_messages_can_be_used(guard: str):
    builder = small_builder(guard + PLAIN)
    assert builder.tokenizer.decode(builder.next([], REPLY, [USER])) == "[user:hi][assistant:"


@pytest.mark.parametrize(
    ("template", "reason"),
    [
        ("{{ raise_exception('never') }}", "never"),
        ("{{ messages|length }}" + PLAIN, "rewrites earlier turns"),
    ],
)
def test_a_template_that_cannot_go_turn_by_turn_is_refused_at_the_start(template: str, reason: str):
    with pytest.raises(SettingsError, match=reason):
        small_builder(template)


def test_a_turn_for_which_the_template_rewrites_history_is_refused():
    builder = small_builder("{% if messages[-1].content == 'odd' %}*{% endif %}" + PLAIN)
    with pytest.raises(UnprocessableError, match=r"rewrites the turns before messages\[4\]"):
        builder.next([1], REPLY, [{"role": "user", "content": "odd"}], offset=4)


def test_the_message_that_cannot_be_rendered_is_named_by_its_index_in_the_request():
    builder = small_builder(
        "{% for m in messages %}{% if m.content == 'odd' %}{{ raise_exception('oops') }}{% endif %}"
        "{% endfor %}" + PLAIN
    )
    odd = {"role": "user", "content": "odd"}
    with pytest.raises(UnrenderableMessageError, match="oops") as refused:
        builder.next([1], REPLY, [USER, odd, USER], offset=6)
    assert refused.value.param == "messages[7]"
    with pytest.raises(UnrenderableMessageError) as refused:
        builder.first([USER, USER, odd])
    assert refused.value.param == "messages[2]"


def test_an_image_is_refused_by_its_index_in_the_request(builder: PromptBuilder):
    image = {"role": "user", "content": [{"type": "image_url"}]}
    with pytest.raises(UnsupportedContentError) as refused:
        builder.next([1], REPLY, [USER, image], offset=2)
    assert refused.value.param == "messages[3].content[0]"


def test_a_role_that_the_family_cannot_append_is_refused_by_its_index_in_the_request():
    builder = small_builder(PLAIN, replace(DEFAULT, append_roles=frozenset({"user", "tool"})))
    late = {"role": "developer", "content": "x"}
    with pytest.raises(RoleNotAppendableError, match="one of tool, user") as refused:
        builder.next([1], REPLY, [USER, late], offset=2)
    assert refused.value.param == "messages[3].role"
    assert builder.first([late, USER])


def test_no_messages_are_refused(builder: PromptBuilder):
    with pytest.raises(RequestError, match="empty") as refused:
        builder.first([])
    assert refused.value.param == "messages"


@pytest.mark.parametrize("tools", [None, []])
def test_no_tools_may_be_said_in_two_ways(builder: PromptBuilder, tools: list[Any] | None):
    assert builder.first([USER], tools) == builder.first([USER])


# Tools in another spelling.


def test_tools_are_told_as_typescript_where_the_family_wants_it():
    told = "{{ tools_ts if tools_ts is defined else tools|tojson }}"
    builder = small_builder(told + PLAIN, replace(DEFAULT, typescript_kwarg="tools_ts"))

    def text_of(tools: list[Any], kwargs: dict[str, Any] | None = None) -> str:
        first = builder.tokenizer.decode(builder.first([USER], tools, kwargs))
        # A later turn is told of them in the same way, or its suffix would be another one.
        assert builder.next([], REPLY, [USER], tools, kwargs)
        return first.removesuffix("[user:hi][assistant:")

    assert text_of(TOOLS) == (
        "# Tools\n\n## functions\nnamespace functions {\ntype f = (_: {}) => any;\n}\n"
    )
    assert text_of(TOOLS, {"tools_ts": "mine"}) == "mine"
    odd = [{"type": "function", "function": {"name": "f", "parameters": {"properties": 1}}}]
    assert text_of(odd) == json.dumps(odd)
    assert "tools_ts" not in builder.template_kwargs_of(None)


# Template kwargs.


def test_kwargs_of_a_request_are_joined_by_those_that_the_family_fixes(builder: PromptBuilder):
    assert builder.template_kwargs_of(None) == {"clear_thinking": False}
    resolved = builder.template_kwargs_of({"enable_thinking": False})
    assert resolved == {"enable_thinking": False, "clear_thinking": False}
    assert builder.template_kwargs_of(resolved) == resolved


@pytest.mark.parametrize(
    ("requested", "param"),
    [
        ("x", "chat_template_kwargs"),
        ([], "chat_template_kwargs"),
        ({"clear_thinking": True}, "chat_template_kwargs.clear_thinking"),
        ({"clear_thinking": None}, "chat_template_kwargs.clear_thinking"),
        ({"messages": []}, "chat_template_kwargs.messages"),
        ({"add_generation_prompt": False}, "chat_template_kwargs.add_generation_prompt"),
        ({"raise_exception": 1}, "chat_template_kwargs.raise_exception"),
    ],
)
def test_kwargs_that_cannot_be_had_are_refused_by_name(
    builder: PromptBuilder, requested: object, param: str
):
    with pytest.raises(BadTemplateKwargsError) as refused:
        builder.template_kwargs_of(requested)
    assert refused.value.param == param


def test_every_prompt_refuses_kwargs_that_cannot_be_had(builder: PromptBuilder):
    bad = {"clear_thinking": True}
    for make in (
        lambda: builder.first([USER], None, bad),
        lambda: builder.whole([USER], None, bad),
        lambda: builder.next([1], REPLY, [USER], None, bad),
    ):
        with pytest.raises(BadTemplateKwargsError):
            make()


def test_a_tokenizer_without_a_token_of_the_family_is_refused():
    with pytest.raises(SettingsError, match=r"no token '<\|im_end\|>'.*qwen3"):
        PromptBuilder(byte_tokenizer(), CHAT, read_shipped_template("qwen3"))
