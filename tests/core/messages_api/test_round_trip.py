"""The law of the form: what a client gets, and sends back, is the message that was sampled."""

import json
from array import array
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from sessions.core.engine_replies.sampled import Sampled
from sessions.core.matchers.choice import MATCHERS
from sessions.core.messages_api.content import messages_of
from sessions.core.messages_api.events import events_of
from sessions.core.messages_api.reply import reply_of
from sessions.core.texts.json_text import Json, JsonObject, render_json

JSON_VALUES = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(max_size=5),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=3)
    ),
    max_leaves=6,
)
OBJECTS = st.dictionaries(st.text(max_size=3), JSON_VALUES, max_size=3)
# As models spell them: with other spaces, broken, with a key twice.
ARGUMENTS = (
    OBJECTS.map(lambda value: json.dumps(value, indent=1))
    | OBJECTS.map(lambda value: render_json(value).decode())
    | st.text(max_size=8)
    | st.sampled_from(["", "{}", "{", "[]", '{"a":1,"a":2}', '{"a":1e999}', '{"a":0.10}'])
)
CALLS = st.builds(
    lambda number, name, arguments, is_indexed: {
        "id": number,
        "type": "function",
        "function": {"name": name, "arguments": arguments},
        **({"index": 0} if is_indexed else {}),
    },
    st.text(max_size=4),
    st.text(max_size=4),
    ARGUMENTS,
    st.booleans(),
)
TEXTS = st.none() | st.text(max_size=20) | st.text(st.characters(categories=["Zs", "Cc"]))
MESSAGES = st.builds(
    lambda content, reasoning, calls: {
        "role": "assistant",
        "content": content,
        "reasoning_content": reasoning,
        "tool_calls": calls,
    },
    TEXTS,
    TEXTS,
    st.none() | st.lists(CALLS, max_size=3),
)


def told(message: JsonObject) -> JsonObject:
    sampled = Sampled(
        reply={"choices": [{"message": message}]},
        message=message,
        token_ids=array("I", [1]),
        log_probs=array("d", [0.0]),
        finish_reason="stop",
    )
    return reply_of(sampled, None)


def stream_content(message: JsonObject) -> list[JsonObject]:
    """The content that a client puts together from the events."""
    blocks: list[JsonObject] = []
    inputs: dict[int, str] = {}
    for event in events_of(message):
        body = json.loads(event.split(b"\n")[1].removeprefix(b"data: "))
        if body["type"] == "content_block_start":
            blocks.append(body["content_block"])
        elif body["type"] == "content_block_delta":
            delta = {key: value for key, value in body["delta"].items() if key != "type"}
            ((field, piece),) = delta.items()
            if field == "partial_json":
                inputs[body["index"]] = inputs.get(body["index"], "") + piece
            else:
                blocks[body["index"]][field] += piece
    for index, text in inputs.items():
        blocks[index]["input"] = json.loads(text)
    return blocks


def sent_back(content: Json) -> JsonObject:
    (message,) = messages_of(None, [{"role": "assistant", "content": content}])
    return message


def reordered(value: Json) -> Json:
    """The same as a client may write it that sorts nothing as it was."""
    if isinstance(value, dict):
        return {key: reordered(member) for key, member in reversed(value.items())}
    return [reordered(member) for member in value] if isinstance(value, list) else value


@settings(derandomize=True, deadline=None)
@given(MESSAGES)
def test_a_reply_that_comes_back_is_the_message_that_was_sampled(message: JsonObject):
    content = json.loads(json.dumps(told(message)))["content"]
    for back in (content, reordered(content)):
        for matcher in MATCHERS.values():
            assert matcher.difference_of(message, sent_back(back)) is None


@settings(derandomize=True, deadline=None)
@given(MESSAGES)
def test_a_stream_tells_the_same_as_a_whole_reply(message: JsonObject):
    whole = told(message)
    assert stream_content(whole) == whole["content"]


@settings(derandomize=True, deadline=None)
@given(MESSAGES)
def test_a_text_that_comes_back_without_its_block_is_the_same(message: JsonObject):
    whole: list[Any] = told({**message, "reasoning_content": None, "tool_calls": None})["content"]
    back = sent_back(whole[0]["text"] if whole else "")
    stored = {"role": "assistant", "content": message["content"]}
    assert MATCHERS["strict"].difference_of(stored, back) is None


def known(message: JsonObject) -> tuple[Json, ...]:
    """What a client knows of a message, but for the arguments of calls."""
    calls = message["tool_calls"] or []
    named = [(call["id"], call["function"]["name"]) for call in calls]
    return message["content"] or "", message["reasoning_content"] or "", named


@settings(derandomize=True, deadline=None)
@given(MESSAGES, MESSAGES, st.sampled_from(["content", "reasoning_content", "tool_calls"]))
def test_what_comes_back_is_no_other_message(message: JsonObject, other: JsonObject, field: str):
    changed = {**message, field: other[field]}
    back = sent_back(told(changed)["content"])
    if known(changed) != known(message):
        assert MATCHERS["strict"].difference_of(message, back) is not None
