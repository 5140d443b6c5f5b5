"""ChatML: prompts, and replies that survive being parsed and written again."""

import json
import string

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sessions.sim.chatml import Call, Utterance, parse_reply, prompt_text, reply_text

PLAIN = st.text(string.ascii_letters + " .,:\né{}", max_size=30).map(str.strip)
OBJECTS = st.dictionaries(PLAIN, st.one_of(PLAIN, st.integers(), st.booleans()), max_size=3)
CALLS = st.builds(
    Call,
    name=st.text(string.ascii_lowercase, min_size=1, max_size=8),
    arguments=OBJECTS.map(lambda value: json.dumps(value, ensure_ascii=False)),
)


@given(reasoning=st.none() | PLAIN, content=PLAIN, calls=st.lists(CALLS, max_size=3))
@settings(derandomize=True, deadline=None)
def test_a_reply_that_is_parsed_is_what_was_written(
    reasoning: str | None, content: str, calls: list[Call]
):
    said = Utterance(reasoning=reasoning, content=content, calls=calls)
    assert parse_reply(reply_text(said), calls=True) == Utterance(
        reasoning=reasoning, content=content, calls=calls or ()
    )


def test_a_reply_is_written_as_the_template_writes_it():
    said = Utterance(
        reasoning="hmm",
        content="Sure.",
        calls=[Call(name="f", arguments='{"a": 1}'), Call(name="g", arguments="{}")],
    )
    assert reply_text(said) == (
        "<think>\nhmm\n</think>\n\nSure.\n"
        '<tool_call>\n{"name": "f", "arguments": {"a": 1}}\n</tool_call>\n'
        '<tool_call>\n{"name": "g", "arguments": {}}\n</tool_call>'
    )
    assert reply_text(Utterance(reasoning="", content="x")) == "<think>\n\n</think>\n\nx"
    assert reply_text(Utterance(reasoning=None, content="x")) == "x"


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("<think>\nstill thin", Utterance(reasoning="still thin", content="")),
        ("<think>\n\n</think>\n\n", Utterance(reasoning="", content="")),
        ("a</think>b", Utterance(reasoning=None, content="a</think>b")),
        ('Well.\n<tool_call>\n{"name": "f", "argu', Utterance(reasoning=None, content="Well.")),
        ("<tool_call>\nno json\n</tool_call>", Utterance(reasoning=None, content="")),
        ("<tool_call>\n[1]\n</tool_call>", Utterance(reasoning=None, content="")),
        ('<tool_call>\n{"name": "f"}\n</tool_call>', Utterance(reasoning=None, content="")),
    ],
)
def test_what_is_cut_or_broken_is_dropped(text: str, expected: Utterance):
    found = parse_reply(text, calls=True)
    assert (found.reasoning, found.content) == (expected.reasoning, expected.content)
    assert list(found.calls) == []


def test_arguments_are_spelt_anew():
    text = '<tool_call>\n{"name": "f",   "arguments": {"city":   "Tromsø"}}\n</tool_call>'
    (call,) = parse_reply(text, calls=True).calls
    assert call.arguments == '{"city": "Tromsø"}'


def test_without_tools_a_call_stays_text():
    text = '<tool_call>\n{"name": "f", "arguments": {}}\n</tool_call>'
    assert parse_reply(text, calls=False) == Utterance(reasoning=None, content=text)


def test_a_prompt_has_all_messages_and_the_generation_prompt():
    call = {"type": "function", "function": {"name": "f", "arguments": '{"a": 1}'}}
    messages: list[dict[str, object]] = [
        {"role": "system", "content": "Be brief."},
        {"role": "user", "content": [{"type": "text", "text": "Hi "}, {"text": "there"}, 3]},
        {
            "role": "assistant",
            "content": None,
            "reasoning_content": "hmm",
            "tool_calls": [call, "odd", {"function": 3}],
        },
        {"role": "tool", "content": "42"},
    ]
    assert prompt_text(messages, thinking=True) == (
        "<|im_start|>system\nBe brief.<|im_end|>\n"
        "<|im_start|>user\nHi there<|im_end|>\n"
        "<|im_start|>assistant\n<think>\nhmm\n</think>\n\n"
        '<tool_call>\n{"name": "f", "arguments": {"a": 1}}\n</tool_call><|im_end|>\n'
        "<|im_start|>tool\n42<|im_end|>\n"
        "<|im_start|>assistant\n"
    )
    assert prompt_text([], thinking=False) == "<|im_start|>assistant\n<think>\n\n</think>\n\n"
