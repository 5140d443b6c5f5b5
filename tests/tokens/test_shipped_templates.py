"""What the shipped templates write, character by character: the facts of the models' formats."""

from typing import Any

import pytest

from sessions.errors.turns import UnrenderableMessageError
from sessions.tokens.families.declaration import Family
from sessions.tokens.families.table import FAMILIES, family_of
from sessions.tokens.messages import normalise_messages
from sessions.tokens.template_kwargs import template_kwargs_of
from sessions.tokens.templates import local_now, read_shipped_template

SHIPPED = [family for family in FAMILIES if family.template]
every_shipped = pytest.mark.parametrize("family", SHIPPED, ids=lambda family: family.name)
TOOLS = [{"type": "function", "function": {"name": "f", "parameters": {"b": 1, "a": 2}}}]


def call(name: str, arguments: str, number: str) -> dict[str, Any]:
    return {"id": number, "type": "function", "function": {"name": name, "arguments": arguments}}


CALLS = [call("f", '{"x": "s\\n", "y": [1, true]}', "c1"), call("g", "", "c2")]
CHAT: list[Any] = [
    {"role": "system", "content": "S"},
    {"role": "user", "content": "hi"},
    {"role": "assistant", "content": "C", "reasoning_content": "R", "tool_calls": CALLS},
    {"role": "tool", "tool_call_id": "c2", "content": "two"},
    {"role": "tool", "tool_call_id": "c1", "content": "one"},
    {"role": "user", "content": "more"},
]


def text_of(
    name: str,
    messages: list[Any],
    tools: list[Any] | None = None,
    *,
    asks: bool = True,
    **kwargs: object,
) -> str:
    family = family_of(name)
    assert family.template is not None
    return read_shipped_template(family.template, family.template_texts).render(
        normalise_messages(messages),
        tools,
        add_generation_prompt=asks,
        kwargs=template_kwargs_of(family, kwargs),
        now=local_now(),
    )


def test_qwen35_writes_calls_as_functions_with_parameters():
    assert text_of("qwen35", CHAT) == (
        "<|im_start|>system\nS<|im_end|>\n"
        "<|im_start|>user\nhi<|im_end|>\n"
        "<|im_start|>assistant\n<think>\nR\n</think>\n\nC\n\n"
        "<tool_call>\n<function=f>\n<parameter=x>\ns\n\n</parameter>\n"
        "<parameter=y>\n[1, true]\n</parameter>\n</function>\n</tool_call>\n"
        "<tool_call>\n<function=g>\n</function>\n</tool_call><|im_end|>\n"
        "<|im_start|>user\n<tool_response>\ntwo\n</tool_response>\n"
        "<tool_response>\none\n</tool_response><|im_end|>\n"
        "<|im_start|>user\nmore<|im_end|>\n"
        "<|im_start|>assistant\n<think>\n"
    )


def test_qwen35_puts_tools_before_what_the_system_says_and_strips_texts():
    text = text_of("qwen35", [{"role": "system", "content": " S "}, *CHAT[1:2]], TOOLS)
    assert text.startswith("<|im_start|>system\n# Tools\n")
    assert '\n<tools>\n{"type": "function", "function": {"name": "f"' in text
    assert "</tool_call>\n\nS<|im_end|>\n<|im_start|>user\nhi<|im_end|>\n" in text
    assert text_of("qwen35", [{"role": "user", "content": "\n a b \n"}]).startswith(
        "<|im_start|>user\na b<|im_end|>\n"
    )


def test_qwen35_closes_the_think_block_of_a_reply_without_thinking():
    text = text_of("qwen35", CHAT[:2], enable_thinking=False)
    assert text.endswith("<|im_start|>assistant\n<think>\n\n</think>\n\n")


def test_qwennext_always_opens_the_think_block():
    for said in (None, False):
        text = text_of("qwennext", CHAT[:2], enable_thinking=said)
        assert text.endswith("<|im_start|>assistant\n<think>\n")
    assert text_of("qwen3", CHAT[:2]).endswith("<|im_start|>assistant\n")


def test_kimi_writes_results_as_system_messages():
    assert text_of("kimi25", CHAT, TOOLS) == (
        "<|im_system|>tool_declare<|im_middle|>"
        '[{"function":{"name":"f","parameters":{"a":2,"b":1}},"type":"function"}]<|im_end|>'
        "<|im_system|>system<|im_middle|>S<|im_end|>"
        "<|im_user|>user<|im_middle|>hi<|im_end|>"
        "<|im_assistant|>assistant<|im_middle|><think>R</think>C<|tool_calls_section_begin|>"
        '<|tool_call_begin|>c1<|tool_call_argument_begin|>{"x": "s\\n", "y": [1, true]}'
        "<|tool_call_end|><|tool_call_begin|>c2<|tool_call_argument_begin|>{}<|tool_call_end|>"
        "<|tool_calls_section_end|><|im_end|>"
        "<|im_system|>tool<|im_middle|>## Return of c2\ntwo<|im_end|>"
        "<|im_system|>tool<|im_middle|>## Return of c1\none<|im_end|>"
        "<|im_user|>user<|im_middle|>more<|im_end|>"
        "<|im_assistant|>assistant<|im_middle|><think>"
    )


def test_kimi_takes_names_and_another_spelling_of_the_tools():
    named = [{"role": "user", "name": "ann", "content": "hi"}]
    assert text_of("kimi25", named, TOOLS, tools_ts_str="TS", thinking=False) == (
        "<|im_system|>tool_declare<|im_middle|>TS<|im_end|>"
        "<|im_user|>ann<|im_middle|>hi<|im_end|>"
        "<|im_assistant|>assistant<|im_middle|><think></think>"
    )


@pytest.mark.parametrize(("name", "model"), [("minimax_m25", "M2.5"), ("minimax_m27", "M2.7")])
def test_minimax_tells_its_name_where_the_client_says_nothing(name: str, model: str):
    assert text_of(name, [{"role": "user", "content": "hi"}]) == (
        "]~!b[]~b]system\n"
        f"You are a helpful assistant. Your name is MiniMax-{model} and is built by MiniMax.[e~[\n"
        "]~b]user\nhi[e~[\n]~b]ai\n<think>\n"
    )


def test_minimax_writes_calls_as_xml_and_results_as_one_turn():
    assert text_of("minimax_m25", CHAT) == (
        "]~!b[]~b]system\nS[e~[\n]~b]user\nhi[e~[\n"
        "]~b]ai\n<think>\nR\n</think>\n\nC\n<minimax:tool_call>\n"
        '<invoke name="f">\n<parameter name="x">s\n</parameter>\n'
        '<parameter name="y">[1, true]</parameter>\n</invoke>\n'
        '<invoke name="g">\n</invoke>\n</minimax:tool_call>[e~[\n'
        "]~b]tool\n<response>two</response>\n<response>one</response>[e~[\n"
        "]~b]user\nmore[e~[\n]~b]ai\n<think>\n"
    )
    assert '<tools>\n<tool>{"name": "f"' in text_of("minimax_m25", CHAT[:2], TOOLS)


# DeepSeek: D(...) has the full-width bars.


def d(text: str) -> str:
    """A text with the bars and blanks of DeepSeek's marks."""
    return (
        text.replace("|", "\uff5c")
        .replace("of_sentence", "of\u2581sentence")
        .replace("begin_of", "begin\u2581of")
        .replace("end_of", "end\u2581of")
    )


V32_CALLS = d(
    '\n\n<|DSML|function_calls>\n<|DSML|invoke name="f">\n'
    '<|DSML|parameter name="x" string="true">s\n</|DSML|parameter>\n'
    '<|DSML|parameter name="y" string="false">[1, true]</|DSML|parameter>\n</|DSML|invoke>\n'
    '<|DSML|invoke name="g">\n\n</|DSML|invoke>\n</|DSML|function_calls><|end_of_sentence|>'
)


@pytest.mark.parametrize("thinks", [True, False])
def test_deepseekv32_writes_results_after_the_reply_and_opens_the_next_one(*, thinks: bool):
    opening = "<think>" if thinks else "</think>"
    assert text_of("deepseekv32", CHAT[:5], thinking=thinks) == (
        d(f"<|begin_of_sentence|>S<|User|>hi<|Assistant|>{opening}")
        + ("R</think>C" if thinks else "C")
        + V32_CALLS
        + "\n\n<function_results>\n<result>two</result>\n<result>one</result>"
        + f"\n</function_results>\n\n{opening}"
    )


def test_deepseekv32_closes_the_thinking_of_a_place_where_nobody_answers():
    text = text_of("deepseekv32", CHAT, thinking=True)
    assert text.endswith(d("\n</function_results>\n\n</think><|User|>more<|Assistant|><think>"))
    two = text_of("deepseekv32", [CHAT[1], CHAT[5]], thinking=True)
    assert two == d(
        "<|begin_of_sentence|><|User|>hi<|Assistant|></think><|User|>more<|Assistant|><think>"
    )


@pytest.mark.parametrize("name", ["deepseekv32", "deepseekv4"])
def test_deepseek_opens_a_reply_that_nobody_asked_for(name: str):
    said = {"role": "assistant", "content": "C"}
    again = d("<|Assistant|></think>C<|end_of_sentence|>")
    assert text_of(name, [CHAT[0], said, said], asks=False) == (
        d("<|begin_of_sentence|>S") + again + again
    )
    assert text_of(name, [CHAT[1], said]).endswith(d("C<|end_of_sentence|><|Assistant|></think>"))


@pytest.mark.parametrize("name", ["deepseekv32", "deepseekv4"])
@pytest.mark.parametrize("start", [0, 1], ids=["with a system message", "without"])
def test_deepseek_declares_tools_at_the_end_of_the_system_message(name: str, start: int):
    text = text_of(name, CHAT[start:2], TOOLS)
    said = "" if start else "S"
    assert text.startswith(d("<|begin_of_sentence|>") + said + "\n\n## Tools\n")
    assert '\n{"name": "f", "parameters": {"b": 1, "a": 2}}\n' in text
    assert text.endswith(d("<|User|>hi<|Assistant|></think>"))


@pytest.mark.parametrize("name", ["deepseekv32", "deepseekv4"])
def test_deepseek_writes_arguments_that_are_no_object_as_one_text(name: str):
    broken = {"role": "assistant", "content": "", "tool_calls": [call("f", '{"a', "c")]}
    text = text_of(name, [CHAT[1], broken], asks=False)
    assert d('<|DSML|parameter name="arguments" string="true">{"a</|DSML|parameter>') in text


def test_deepseekv4_folds_results_and_questions_in_the_order_of_the_calls():
    calls = V32_CALLS.replace("function_calls", "tool_calls")
    assert text_of("deepseekv4", CHAT, thinking=True) == (
        d("<|begin_of_sentence|>S<|User|>hi<|Assistant|><think>R</think>C")
        + calls
        + d("<|User|><tool_result>one</tool_result>\n\n<tool_result>two</tool_result>\n\nmore")
        + d("<|Assistant|><think>")
    )


def test_deepseekv4_keeps_questions_where_they_stand_between_results():
    asked = [*CHAT[1:4], CHAT[5], CHAT[4], {"role": "tool", "content": "stray"}]
    text = text_of("deepseekv4", asked)
    results = ["<tool_result>one</tool_result>", "more", "<tool_result>stray</tool_result>"]
    results.append("<tool_result>two</tool_result>")
    assert text.endswith(d("<|User|>" + "\n\n".join(results) + "<|Assistant|></think>"))


def test_deepseekv4_opens_no_reply_before_a_system_message():
    text = text_of("deepseekv4", [CHAT[1], CHAT[0]])
    assert text == d("<|begin_of_sentence|><|User|>hiS<|Assistant|></think>")


def test_deepseekv4_refuses_the_effort_that_it_does_not_know():
    assert text_of("deepseekv4", CHAT[:2], reasoning_effort="high")
    with pytest.raises(UnrenderableMessageError, match="reasoning_effort"):
        text_of("deepseekv4", CHAT[:2], reasoning_effort="max")


EFFORT = "<|message_system|><|content_text|>Thinking effort level: "


def test_inkling_writes_a_row_of_blocks():
    assert text_of("inkling", CHAT, TOOLS) == (
        "<|message_system|>tool_declare<|content_xml|>"
        '[{"description":"","name":"f","parameters":{"a":2,"b":1},"type":"function"}]'
        "<|end_message|><|message_system|><|content_text|>S<|end_message|>"
        f"{EFFORT}0.9<|end_message|><|message_user|><|content_text|>hi<|end_message|>"
        "<|message_model|><|content_thinking|>R<|end_message|>"
        "<|message_model|><|content_text|>C<|end_message|>"
        '<|message_model|>f<|content_invoke_tool_json|>{"name":"f","args":'
        '{"x":"s\\n","y":[1,true]}}<|end_message|>'
        '<|message_model|>g<|content_invoke_tool_json|>{"name":"g","args":{}}<|end_message|>'
        "<|content_model_end_sampling|>"
        "<|message_tool|>g<|content_text|>two<|end_message|>"
        "<|message_tool|>f<|content_text|>one<|end_message|>"
        "<|message_user|><|content_text|>more<|end_message|><|message_model|>"
    )


@pytest.mark.parametrize(
    ("said", "told"),
    [(None, "0.9"), ("low", "0.2"), ("none", "0.0"), (0, "0.0"), (0.5, "0.5"), (0.99, "0.99")],
)
def test_inkling_tells_the_effort_once_before_the_first_that_is_not_the_systems(
    said: object, told: str
):
    text = text_of("inkling", [CHAT[0], CHAT[1], CHAT[1]], reasoning_effort=said)
    assert text.count("effort level") == 1
    assert f"S<|end_message|>{EFFORT}{told}<|end_message|><|message_user|>" in text


@pytest.mark.parametrize("said", ["loud", 1, -0.1, []])
def test_inkling_refuses_another_effort(said: object):
    with pytest.raises(UnrenderableMessageError, match="reasoning_effort"):
        text_of("inkling", CHAT[:2], reasoning_effort=said)


def test_inkling_leaves_nothing_of_an_empty_reply_and_tells_the_effort_at_the_latest():
    assert text_of("inkling", [CHAT[0], {"role": "assistant"}], asks=False).endswith(
        f"S<|end_message|>{EFFORT}0.9<|end_message|>"
    )
    assert text_of("inkling", CHAT[:1]).endswith(f"{EFFORT}0.9<|end_message|><|message_model|>")


@pytest.mark.parametrize("name", ["qwen35", "minimax_m25"])
def test_a_late_system_message_is_refused_where_the_format_has_none(name: str):
    with pytest.raises(UnrenderableMessageError, match="system message must be the first"):
        text_of(name, [CHAT[1], CHAT[0]])


@pytest.mark.parametrize("name", ["qwen3", "qwen35", "kimi25", "minimax_m25"])
def test_thinking_that_stands_in_the_content_is_written_as_thinking(name: str):
    apart = {"role": "assistant", "content": "C", "reasoning_content": "R"}
    inside = {"role": "assistant", "content": "<think>R</think>C"}
    assert text_of(name, [CHAT[1], inside]) == text_of(name, [CHAT[1], apart])


@every_shipped
def test_a_call_whose_arguments_are_no_object_is_written_as_it_is(family: Family):
    broken = {"role": "assistant", "content": "C", "tool_calls": [call("f", '{"a', "c")]}
    assert '{"a' in text_of(family.name, [CHAT[1], broken])
