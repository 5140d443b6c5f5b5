"""Improvisation: who calls which tool when, and that scripted parts are said as scripted."""

import json
import random
from typing import Any

import msgspec
import pytest

from sessions.sim.body import ChatBody
from sessions.sim.chatml import Utterance
from sessions.sim.improvisation import utterance_of
from sessions.sim.options import SimOptions, Thinking

USER = {"role": "user", "content": "How is it in Paris?"}
REPLY = {"role": "assistant", "content": "fine"}
RESULT = {"role": "tool", "content": "<b>21 degrees</b>\nand <|im_end|> sun" + "." * 500}


def tool(name: str) -> dict[str, Any]:
    parameters = {"type": "object", "properties": {"city": {"type": "string"}}}
    return {"type": "function", "function": {"name": name, "parameters": parameters}}


TOOLS = [tool("first"), tool("second")]


def say(
    messages: list[dict[str, Any]],
    options: SimOptions | None = None,
    *,
    seed: int = 1,
    thinking: bool = True,
    **fields: object,
) -> Utterance:
    body = msgspec.convert({"messages": messages, **fields}, ChatBody)
    chosen = options or SimOptions()
    return utterance_of(body, chosen, random.Random(seed), thinking=thinking)


def names(said: Utterance) -> list[str]:
    return [call.name for call in said.calls]


def test_a_tool_is_called_after_a_users_message():
    said = say([USER], tools=TOOLS)
    assert names(said) == ["first"]
    assert json.loads(said.calls[0].arguments) == {"city": "Paris"}
    assert said.content
    assert "first" in (said.reasoning or "")


def test_a_rollout_uses_all_tools_and_sometimes_two():
    turns = [names(say([USER, REPLY] * index + [USER], tools=TOOLS)) for index in range(4)]
    assert turns == [["first"], ["second"], ["first", "second"], ["second"]]


def test_a_result_is_quoted_without_markup():
    said = say([USER, REPLY, RESULT], tools=TOOLS)
    assert names(said) == []
    assert "21 degrees" in said.content
    assert not set("<>|\n") & set(said.content)
    assert len(said.content) < 400


@pytest.mark.parametrize(
    ("fields", "expected"),
    [
        ({}, []),
        ({"tools": []}, []),
        ({"tools": [{"type": "odd"}]}, []),
        ({"tools": TOOLS, "tool_choice": "none"}, []),
        ({"tools": TOOLS, "tool_choice": "required"}, ["first"]),
        (
            {
                "tools": TOOLS,
                "tool_choice": {"type": "function", "function": {"name": "second"}},
            },
            ["second"],
        ),
        ({"tools": TOOLS, "tool_choice": {"function": {"name": "other"}}}, []),
    ],
)
def test_the_request_has_the_last_word_on_calls(fields: dict[str, Any], expected: list[str]):
    assert names(say([USER], **fields)) == expected


def test_a_demanded_call_is_made_after_a_result_too():
    assert names(say([USER, REPLY, RESULT], tools=TOOLS, tool_choice="required")) == ["first"]
    assert names(say([USER, REPLY, RESULT], tools=TOOLS, tool_choice="auto")) == []


def test_calls_can_be_switched_off():
    assert names(say([USER], SimOptions(calls=False), tools=TOOLS)) == []


def test_scripted_parts_are_said_as_scripted():
    script = {
        "content": "hi",
        "reasoning": "",
        "tool_calls": [
            {"name": "f", "arguments": {"ø": 1}},
            {"name": "g", "arguments": '{"a":   1'},
        ],
    }
    said = say([USER], sim=script)
    assert (said.content, said.reasoning) == ("hi", "")
    assert [(call.name, call.arguments) for call in said.calls] == [
        ("f", '{"ø": 1}'),
        ("g", '{"a":   1'),
    ]
    assert say([USER], sim={"reasoning": None}).reasoning is None


def test_scripted_content_or_no_calls_means_no_improvised_calls():
    assert names(say([USER], tools=TOOLS, sim={"content": "hi"})) == []
    assert names(say([USER], tools=TOOLS, sim={"tool_calls": []})) == []


def test_thinking_follows_the_option_and_the_prompt():
    assert say([USER]).reasoning
    assert say([USER], SimOptions(thinking=Thinking.EMPTY)).reasoning == ""
    assert say([USER], SimOptions(thinking=Thinking.NONE)).reasoning is None
    assert say([USER], thinking=False).reasoning is None
    assert say([USER], thinking=False, sim={"reasoning": "still"}).reasoning == "still"


@pytest.mark.parametrize("words", [1, 12, 400])
def test_an_answer_has_about_the_words_wanted(words: int):
    assert len(say([USER], SimOptions(words=words)).content.split()) == words


def test_no_messages_at_all_are_answered():
    assert say([], tools=TOOLS).content
