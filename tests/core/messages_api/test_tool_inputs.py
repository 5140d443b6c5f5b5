import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sessions.core.matchers.arguments import Reworded, doubled_of
from sessions.core.messages_api.tool_inputs import UNPARSED, arguments_of, input_of
from sessions.core.texts.json_text import Json, JsonObject

VALUES = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=8,
)
TEXTS = st.text() | VALUES.map(json.dumps) | VALUES.map(lambda value: json.dumps({"a": value}))


@pytest.mark.parametrize(
    ("arguments", "given_input"),
    [
        ('{"a": [1, "b"]}', {"a": [1, "b"]}),
        ({"a": 1}, {"a": 1}),
        ("", {}),
        (None, {}),
        ("{}", {}),
        ("{broken", {UNPARSED: "{broken"}),
        ("[1]", {UNPARSED: "[1]"}),
        ('{"a":1,"a":2}', {"a": 2}),
        ('{"a": NaN}', {UNPARSED: '{"a": NaN}'}),
        ('{"a": 1e400}', {UNPARSED: '{"a": 1e400}'}),
        ('{"a": %s}' % ("9" * 5000), {UNPARSED: '{"a": %s}' % ("9" * 5000)}),
        ([1], {UNPARSED: "[1]"}),
    ],
)
def test_a_client_gets_an_object_whatever_was_sampled(arguments: Json, given_input: JsonObject):
    assert input_of(arguments) == given_input


def test_an_object_that_looks_like_an_unparsed_text_is_told_as_one():
    text = json.dumps({UNPARSED: "x"})
    assert input_of(text) == {UNPARSED: text}
    assert arguments_of(input_of(text)) == text


@pytest.mark.parametrize(
    "given_input", [{UNPARSED: '{"a":1}'}, {UNPARSED: 1}, {UNPARSED: "", "b": 1}]
)
def test_what_is_no_unparsed_text_of_ours_is_an_input_like_others(given_input: JsonObject):
    assert json.loads(arguments_of(given_input)) == given_input


def test_arguments_are_marked_as_our_spelling():
    assert type(arguments_of({"a": 1})) is Reworded
    assert type(arguments_of({UNPARSED: "{broken"})) is Reworded


@settings(derandomize=True, deadline=None)
@given(TEXTS)
def test_arguments_come_back_as_they_were_or_say_the_same(text: str):
    sent = json.loads(json.dumps(input_of(text)))
    back = arguments_of(sent)
    assert back == text or doubled_of(back) == doubled_of(text) is not None


@settings(derandomize=True, deadline=None)
@given(st.dictionaries(st.text() | st.just(UNPARSED), VALUES, max_size=3))
def test_inputs_of_a_client_come_back_to_it(sent: JsonObject):
    assert input_of(arguments_of(sent)) in (sent, {UNPARSED: arguments_of(sent)})
