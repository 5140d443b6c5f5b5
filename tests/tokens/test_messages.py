import copy
import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sessions.errors.client_visible import RequestError
from sessions.errors.turns import UnrenderableMessageError, UnsupportedContentError
from sessions.tokens.messages import ROLES, normalise_messages


def of(**message: object) -> dict[str, Any]:
    (found,) = normalise_messages([message])
    return found


def arguments_of(text: object) -> object:
    call = {"id": "c", "type": "function", "function": {"name": "f", "arguments": text}}
    (found,) = of(role="assistant", tool_calls=[call])["tool_calls"]
    return found["function"]["arguments"]


@pytest.mark.parametrize(
    ("content", "text"),
    [
        ("hi", "hi"),
        (" hi\n", " hi\n"),
        (None, ""),
        ([], ""),
        ([{"type": "text", "text": "a "}, {"type": "text", "text": "b"}], "a b"),
        ([{"type": "input_text", "text": "a"}, {"type": "output_text", "text": "b"}], "ab"),
    ],
)
def test_content_becomes_its_text(content: object, text: str):
    assert of(role="user", content=content) == {"role": "user", "content": text}


def test_a_message_without_content_has_an_empty_one():
    assert of(role="assistant") == {"role": "assistant", "content": ""}


def test_developer_is_the_system_role():
    assert of(role="developer", content="x") == {"role": "system", "content": "x"}


def test_unknown_fields_are_kept():
    assert of(role="tool", content="x", tool_call_id="c", extra=[1])["extra"] == [1]


@pytest.mark.parametrize("name", ["reasoning", "reasoning_content"])
def test_reasoning_is_found_under_both_names(name: str):
    found = of(role="assistant", content="x", **{name: "hm"})
    assert found == {"role": "assistant", "content": "x", "reasoning_content": "hm"}


def test_reasoning_content_wins_over_reasoning():
    found = of(role="assistant", reasoning_content="", reasoning="b")
    assert found["reasoning_content"] == ""


def test_reasoning_that_is_null_is_absent():
    assert "reasoning_content" not in of(role="assistant", reasoning_content=None, reasoning=None)


@pytest.mark.parametrize("calls", [None, []])
def test_no_tool_calls_are_absent(calls: object):
    assert "tool_calls" not in of(role="assistant", tool_calls=calls)


@pytest.mark.parametrize(
    ("text", "parsed"),
    [
        ('{"b": 1, "a": [true, null]}', {"b": 1, "a": [True, None]}),
        ({"a": 1}, {"a": 1}),
        (None, {}),
        ("", {}),
        (" \n", {}),
        ('{"a": 1.5}', {"a": 1.5}),
        ("[1]", "[1]"),
        ('"x"', '"x"'),
        ('{"a": 1', '{"a": 1'),
        ('{"a": NaN}', '{"a": NaN}'),
        ('{"a": 1e999}', '{"a": 1e999}'),
        ("[" * 200_000, "[" * 200_000),
        ('{"a": ' + "9" * 5000 + "}", '{"a": ' + "9" * 5000 + "}"),
    ],
    ids=lambda value: repr(value)[:20],
)
def test_arguments_become_an_object_where_they_are_one(text: object, parsed: object):
    assert arguments_of(text) == parsed


def test_key_order_of_arguments_is_kept():
    assert json.dumps(arguments_of('{"b": 1, "a": 2}')) == '{"b": 1, "a": 2}'


@pytest.mark.parametrize(
    ("message", "param"),
    [
        ("hi", "messages[7]"),
        (None, "messages[7]"),
        ({"content": "x"}, "messages[7].role"),
        ({"role": "function", "content": "x"}, "messages[7].role"),
        ({"role": ["user"], "content": "x"}, "messages[7].role"),
        ({"role": "user", "content": 3}, "messages[7].content"),
        ({"role": "user", "content": {"type": "text"}}, "messages[7].content"),
        ({"role": "user", "content": ["x"]}, "messages[7].content[0]"),
        ({"role": "user", "content": [{"text": "x"}]}, "messages[7].content[0]"),
        ({"role": "user", "content": [{"type": "text"}]}, "messages[7].content[0].text"),
        ({"role": "assistant", "reasoning_content": 1}, "messages[7].reasoning_content"),
        ({"role": "assistant", "tool_calls": "x"}, "messages[7].tool_calls"),
        ({"role": "assistant", "tool_calls": {}}, "messages[7].tool_calls"),
        ({"role": "assistant", "tool_calls": [1]}, "messages[7].tool_calls[0]"),
        ({"role": "assistant", "tool_calls": [{}]}, "messages[7].tool_calls[0]"),
        (
            {"role": "assistant", "tool_calls": [{"function": {"name": None}}]},
            "messages[7].tool_calls[0].function.name",
        ),
    ],
)
def test_what_no_template_knows_is_refused_by_its_place(message: object, param: str):
    with pytest.raises(UnrenderableMessageError) as refused:
        normalise_messages([{"role": "user", "content": "x"}, message], offset=6)
    assert refused.value.param == param
    assert refused.value.status == 400
    assert refused.value.message.startswith(param)


def test_an_image_is_refused_as_unsupported():
    image = {"type": "image_url", "image_url": {"url": "data:"}}
    with pytest.raises(UnsupportedContentError, match="image_url") as refused:
        of(role="user", content=[{"type": "text", "text": "x"}, image])
    assert refused.value.param == "messages[0].content[1]"


@pytest.mark.parametrize("messages", [None, "hi", 1, {"role": "user"}])
def test_messages_that_are_no_list_are_refused(messages: object):
    with pytest.raises(RequestError) as refused:
        normalise_messages(messages)
    assert refused.value.param == "messages"


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=5),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3)
    ),
    max_leaves=8,
)
FIELDS = ["role", "content", "reasoning", "reasoning_content", "tool_calls", "name"]
MESSAGES = st.lists(st.dictionaries(st.sampled_from(FIELDS), JSON, max_size=4), max_size=3)
ROLED = st.lists(
    st.fixed_dictionaries({"role": st.sampled_from(sorted(ROLES))}, optional={"content": JSON}),
    max_size=3,
)


@settings(derandomize=True, deadline=None)
@given(messages=MESSAGES | ROLED | JSON)
def test_any_json_is_normalised_or_refused_and_never_changed(messages: object):
    before = copy.deepcopy(messages)
    try:
        found = normalise_messages(messages)
    except RequestError:
        found = []
    assert messages == before
    for message in found:
        assert message["role"] in ROLES
        assert isinstance(message["content"], str)
    assert normalise_messages(found) == found
