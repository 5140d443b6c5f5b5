import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sessions.core.matchers.arguments import Reworded
from sessions.core.matchers.choice import MATCHERS
from sessions.core.matchers.fields import LOOSE_TOOL_CALL, ROLE_CONTENT_ONLY, STRICT
from sessions.core.matchers.matcher import Matcher
from sessions.core.texts.json_text import Json, JsonObject

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
def test_messages_are_strictly_the_same_when_only_what_is_ignored_differs(
    stored: JsonObject, sent: JsonObject
):
    assert STRICT.difference_of(stored, sent) is None
    assert STRICT.difference_of(sent, stored) is None


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
    found = STRICT.difference_of(REPLY, sent)
    assert found is not None
    assert found.path == path


@pytest.mark.parametrize("pair", [(1, 1.0), (1, True), (0, False), ("1", 1), (None, 0)])
def test_numbers_of_another_type_differ(pair: tuple[object, object]):
    ours, theirs = ({"role": "user", "content": [{"x": value}]} for value in pair)
    assert STRICT.difference_of(ours, theirs) is not None


def call_that(arguments: object) -> JsonObject:
    return {"role": "assistant", "content": "hi", "tool_calls": [call_with(arguments=arguments)]}


@pytest.mark.parametrize(
    ("stored", "sent"),
    [
        ('{"a": 1, "b": [2]}', '{"b":[2],"a":1}'),
        ('{"a": 1}', {"a": 1}),
        ('{"a": 1.0}', '{"a": 1e0}'),
        ('{"a": 100}', {"a": 100.0}),
        ('{"a": 0.10}', {"a": 0.1}),
        ('{"a": "\\u00e9"}', '{"a": "é"}'),
        ("{}", ""),
        ("", None),
        (None, {}),
        (" { } ", "{}"),
        ("not json", "not json"),
        ('{"a": 1, "a": 1}', '{"a": 1, "a": 1}'),
        ("[1]", "[1]"),
    ],
)
def test_loose_arguments_are_the_same_if_they_say_the_same(stored: Json, sent: Json):
    ours, theirs = call_that(stored), call_that(sent)
    assert LOOSE_TOOL_CALL.difference_of(ours, theirs) is None
    assert LOOSE_TOOL_CALL.difference_of(theirs, ours) is None


@pytest.mark.parametrize(
    ("stored", "sent"),
    [
        ('{"a": 1}', '{"a": 2}'),
        ('{"a": 1}', '{"a": true}'),
        ('{"a": 0}', '{"a": false}'),
        ('{"a": 1}', '{"a": "1"}'),
        ('{"a": [1, 2]}', '{"a": [2, 1]}'),
        ('{"a": null}', "{}"),
        ('{"a": ""}', '{"a": null}'),
        ('{"a": 0.1}', '{"a": 0.1000000000000000055511151231257827}'),
        ('{"a": 12345678901234567890}', '{"a": 12345678901234567891}'),
        # No canonical form: only the very same text is the same.
        ('{"a": 1, "a": 1}', '{"a":1,"a":1}'),
        ('{"a": 1, "a": 1}', '{"a": 1}'),
        ('{"x": {"a": 1, "a": 2}}', '{"x": {"a": 2}}'),
        ('{"a": NaN}', '{"a":NaN}'),
        ('{"a": Infinity}', '{"a": 1e999}'),
        ("[1]", "[ 1 ]"),
        ("null", ""),
        ("null", "{}"),
        ("1", "1.0"),
        ("not json", "not  json"),
        ('{"a": 1} x', '{"a":1} x'),
    ],
)
def test_loose_arguments_that_say_something_else_differ(stored: Json, sent: Json):
    ours, theirs = call_that(stored), call_that(sent)
    found = LOOSE_TOOL_CALL.difference_of(ours, theirs)
    assert found is not None
    assert found.path == "tool_calls[0].function.arguments"
    assert LOOSE_TOOL_CALL.difference_of(theirs, ours) is not None


def test_a_number_no_decimal_can_hold_is_only_the_same_text():
    huge = '{"a": 1e99999999999999999999}'
    assert LOOSE_TOOL_CALL.difference_of(call_that(huge), call_that(huge)) is None
    assert LOOSE_TOOL_CALL.difference_of(call_that(huge), call_that(huge + " ")) is not None
    assert LOOSE_TOOL_CALL.difference_of(call_that(huge), call_that('{"a": 1}')) is not None


def test_arguments_that_are_nested_very_deeply_are_only_the_same_text():
    deep = '{"a":' * 5000 + "1" + "}" * 5000
    assert LOOSE_TOOL_CALL.difference_of(call_that(deep), call_that(deep)) is None
    assert LOOSE_TOOL_CALL.difference_of(call_that(deep), call_that(deep + " ")) is not None


@pytest.mark.parametrize(
    ("sent", "path"),
    [
        ([call_with(name="g", arguments='{"a":1}')], "tool_calls[0].function.name"),
        ([{**call_with(arguments='{"a":1}'), "id": "c2"}], "tool_calls[0].id"),
        ([{**call_with(arguments='{"a":1}'), "type": "x"}], "tool_calls[0].type"),
        ([call_with(arguments='{"a":1}', strict=True)], "tool_calls[0].function.strict"),
        ([CALL, CALL], "tool_calls"),
        ([{"id": "c1", "type": "function"}], "tool_calls[0].function"),
        (["c1"], "tool_calls[0]"),
        ("c1", "tool_calls"),
    ],
)
def test_a_loose_matcher_reads_nothing_but_the_arguments(sent: Json, path: str):
    found = LOOSE_TOOL_CALL.difference_of(REPLY, {**REPLY, "tool_calls": sent})
    assert found is not None
    assert found.path == path


def test_the_order_of_calls_counts():
    calls = [{**call_with(name=name, arguments="{}"), "id": name} for name in ("a", "b")]
    ours, theirs = {**REPLY, "tool_calls": calls}, {**REPLY, "tool_calls": calls[::-1]}
    found = LOOSE_TOOL_CALL.difference_of(ours, theirs)
    assert found is not None
    assert found.path == "tool_calls[0].id"


def test_role_and_content_alone_are_compared_where_the_matcher_says_so():
    bare = {"role": "assistant", "content": "hi"}
    assert ROLE_CONTENT_ONLY.difference_of(REPLY, bare) is None
    assert LOOSE_TOOL_CALL.difference_of(REPLY, bare) is not None
    for changed, path in (
        ({**REPLY, "role": "user"}, "role"),
        ({**REPLY, "content": "ho"}, "content"),
    ):
        found = ROLE_CONTENT_ONLY.difference_of(REPLY, changed)
        assert found is not None
        assert found.path == path


EMPTY: list[Json] = [None, "", []]


@pytest.mark.parametrize("stored", EMPTY)
@pytest.mark.parametrize("sent", EMPTY)
@pytest.mark.parametrize("matcher", MATCHERS.values(), ids=MATCHERS)
def test_messages_without_a_text_are_sought_together(matcher: Matcher, stored: Json, sent: Json):
    ours = {"role": "assistant", "content": stored}
    theirs = {"role": "assistant", "content": sent}
    assert matcher.difference_of(ours, theirs) is None
    assert matcher.bucket_of(ours) == matcher.bucket_of(theirs)
    assert matcher.bucket_of(ours) == matcher.bucket_of({"role": "assistant"})


VALUES: st.SearchStrategy[Json] = st.sampled_from(
    [None, "", [], "a", "b", ["a"], [{"text": "a"}], 1, 1.0, True, {}]
)
ARGUMENTS: st.SearchStrategy[Json] = st.sampled_from(
    [None, "", {}, "{}", '{"a":1}', '{"a": 1.0}', {"a": 1}, {"a": True}, '{"a":true}', "[]", "x"]
)
CALLS = st.fixed_dictionaries(
    {},
    optional={
        "id": st.sampled_from(["c", "d", None]),
        "index": st.integers(0, 1),
        "function": st.fixed_dictionaries(
            {}, optional={"name": st.sampled_from(["f", "g"]), "arguments": ARGUMENTS}
        ),
    },
)
MESSAGES = st.fixed_dictionaries(
    {},
    optional={
        "role": st.sampled_from([None, "", "user", "assistant", 1, ["user"]]),
        "content": VALUES,
        "reasoning": VALUES,
        "reasoning_content": VALUES,
        "tool_calls": VALUES | st.lists(CALLS, max_size=2),
        "name": VALUES,
    },
)


def is_same(matcher: Matcher, one: JsonObject, other: JsonObject) -> bool:
    return matcher.difference_of(one, other) is None


@pytest.mark.parametrize("matcher", MATCHERS.values(), ids=MATCHERS)
@given(one=MESSAGES, other=MESSAGES, third=MESSAGES)
@settings(derandomize=True, deadline=None, max_examples=300)
def test_every_matcher_is_an_equality_and_seeks_equal_messages_together(
    matcher: Matcher, one: JsonObject, other: JsonObject, third: JsonObject
):
    assert is_same(matcher, one, one)
    assert is_same(matcher, one, other) == is_same(matcher, other, one)
    if is_same(matcher, one, other):
        assert matcher.bucket_of(one) == matcher.bucket_of(other)
        assert is_same(matcher, other, third) == is_same(matcher, one, third)


@given(MESSAGES, MESSAGES)
@settings(derandomize=True, deadline=None, max_examples=500)
def test_a_looser_matcher_takes_what_a_stricter_one_takes(one: JsonObject, other: JsonObject):
    if is_same(STRICT, one, other):
        assert is_same(LOOSE_TOOL_CALL, one, other)
    if is_same(LOOSE_TOOL_CALL, one, other):
        assert is_same(ROLE_CONTENT_ONLY, one, other)


def reworded(text: str, **call: object) -> JsonObject:
    """The reply as a client sends it back that only ever saw the object."""
    return {**REPLY, "tool_calls": [{**call_with(arguments=Reworded(text)), **call}]}


@pytest.mark.parametrize("matcher", [STRICT, LOOSE_TOOL_CALL])
@pytest.mark.parametrize("text", ['{"a":1}', '{"a": 1.0}'])
def test_arguments_that_were_sent_as_an_object_are_compared_by_what_they_say(
    matcher: Matcher, text: str
):
    assert matcher.difference_of(REPLY, reworded(text)) is None
    assert matcher.difference_of(reworded(text), REPLY) is None


def test_of_a_call_that_was_sent_as_an_object_only_what_the_client_knows_counts():
    stored = {**REPLY, "tool_calls": [{**CALL, "extra": 1}]}
    assert STRICT.difference_of(stored, reworded('{"a":1}')) is None
    broken = {**REPLY, "tool_calls": [call_with(arguments="{broken")]}
    assert STRICT.difference_of(broken, reworded("{broken")) is None


@pytest.mark.parametrize(
    ("sent", "path"),
    [
        (reworded('{"a":2}'), "tool_calls[0].function.arguments"),
        (reworded("{broken"), "tool_calls[0].function.arguments"),
        (reworded('{"a":1}', id="c2"), "tool_calls[0].id"),
        (
            {**REPLY, "tool_calls": [call_with(name="g", arguments=Reworded('{"a":1}'))]},
            "tool_calls[0].function.name",
        ),
    ],
)
def test_a_call_that_was_sent_as_an_object_differs_where_it_says_something_else(
    sent: JsonObject, path: str
):
    found = STRICT.difference_of(REPLY, sent)
    assert found is not None
    assert found.path == path
