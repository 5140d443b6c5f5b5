import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sessions.core.json_text import JsonObject
from sessions.core.matcher import difference_of, matched_count_of

CALL = {"id": "c1", "type": "function", "function": {"name": "f", "arguments": '{"a": 1}'}}
REPLY = {"role": "assistant", "content": "hi", "reasoning_content": "hm", "tool_calls": [CALL]}


def call_with(**function: object) -> dict[str, object]:
    return {**CALL, "function": {**CALL["function"], **function}}  # type: ignore[dict-item]


@pytest.mark.parametrize(
    ("stored", "sent"),
    [
        (REPLY, dict(reversed(REPLY.items()))),
        (REPLY, {**REPLY, "tool_calls": [{**CALL, "index": 0}]}),
        (REPLY, {**REPLY, "name": "x", "refusal": None, "annotations": []}),
        ({"role": "assistant", "content": None}, {"role": "assistant", "content": ""}),
        ({"role": "assistant", "content": None}, {"role": "assistant"}),
        (
            {"role": "assistant", "content": "", "tool_calls": []},
            {"role": "assistant", "tool_calls": None},
        ),
        (
            {"role": "assistant", "reasoning": "hm"},
            {"role": "assistant", "reasoning_content": "hm"},
        ),
    ],
    ids=["key order", "index", "other keys", "null and empty", "missing", "no calls", "reasoning"],
)
def test_messages_are_the_same_when_only_what_is_ignored_differs(
    stored: JsonObject, sent: JsonObject
):
    assert difference_of(stored, sent) is None
    assert difference_of(sent, stored) is None


@pytest.mark.parametrize(
    ("sent", "path"),
    [
        ({**REPLY, "role": "user"}, "role"),
        ({**REPLY, "content": "hi "}, "content"),
        ({**REPLY, "content": [{"type": "text", "text": "hi"}]}, "content"),
        ({**REPLY, "reasoning_content": None}, "reasoning_content"),
        ({**REPLY, "tool_calls": None}, "tool_calls"),
        ({**REPLY, "tool_calls": [CALL, CALL]}, "tool_calls"),
        ({**REPLY, "tool_calls": [{**CALL, "id": "c2"}]}, "tool_calls[0].id"),
        ({**REPLY, "tool_calls": [{**CALL, "extra": 1}]}, "tool_calls[0].extra"),
        (
            {**REPLY, "tool_calls": [call_with(arguments='{"a":1}')]},
            "tool_calls[0].function.arguments",
        ),
        ({**REPLY, "tool_calls": [{"id": "c1", "type": "function"}]}, "tool_calls[0].function"),
    ],
)
def test_the_first_field_that_differs_is_named(sent: JsonObject, path: str):
    found = difference_of(REPLY, sent)
    assert found is not None
    assert found.path == path


@pytest.mark.parametrize("pair", [(1, 1.0), (1, True), (0, False), ("1", 1), (None, 0)])
def test_numbers_of_another_type_differ(pair: tuple[object, object]):
    ours, theirs = ({"role": "user", "content": [{"x": value}]} for value in pair)
    assert difference_of(ours, theirs) is not None


def test_long_texts_are_shown_from_where_they_part():
    same = "y" * 5000
    found = difference_of(
        {"role": "user", "content": same + "stored"}, {"role": "user", "content": same + "sent"}
    )
    assert found is not None
    assert "ystored" in found.stored
    assert "ysent" in found.sent
    assert len(found.stored) < 80


def test_a_value_is_shown_in_ascii_and_cut_to_one_short_line():
    found = difference_of({"role": "user", "content": "é\n" * 500}, {"role": "user"})
    assert found is not None
    assert found.stored.isascii()
    assert len(found.stored) <= 60
    assert found.sent == "nothing"


def test_matching_counts_from_the_start_until_the_first_difference():
    stored = [{"role": "user", "content": str(i)} for i in range(4)]
    assert matched_count_of(stored, stored) == 4
    assert matched_count_of(stored, [*stored, REPLY]) == 4
    assert matched_count_of(stored, [*stored[:2], REPLY, stored[3]]) == 2
    assert matched_count_of(stored, []) == 0


MESSAGES = st.fixed_dictionaries(
    {"role": st.sampled_from(["user", "assistant"])},
    optional={
        "content": st.none()
        | st.text(max_size=3)
        | st.lists(st.dictionaries(st.text(max_size=1), st.integers(0, 1), max_size=2), max_size=2),
        "tool_calls": st.none()
        | st.lists(st.fixed_dictionaries({"id": st.text(max_size=1)}), max_size=2),
    },
)


@given(MESSAGES, MESSAGES)
@settings(derandomize=True, deadline=None)
def test_whether_two_messages_differ_does_not_depend_on_their_order(
    one: JsonObject, other: JsonObject
):
    assert (difference_of(one, other) is None) == (difference_of(other, one) is None)
    assert difference_of(one, one) is None
