import pytest

from sessions.core.matchers.arguments import canonical_of, doubled_of
from sessions.core.texts.json_text import Json


@pytest.mark.parametrize("empty", [None, "", {}, "{}", " {}"])
def test_no_arguments_have_one_form(empty: Json):
    assert canonical_of(empty) == canonical_of({}) is not None


@pytest.mark.parametrize(
    "arguments",
    [
        "x",
        "[]",
        "null",
        " ",
        '{"a":1,"a":1}',
        '{"a":NaN}',
        '{"a":-Infinity}',
        {"a": float("nan")},
        ["a"],
        1,
        True,
        False,
        "{" * 5000,
    ],
)
def test_what_is_no_object_or_not_clear_has_no_form(arguments: Json):
    assert canonical_of(arguments) is None


def test_the_forms_of_true_and_one_differ_wherever_they_stand():
    assert canonical_of({"a": [True]}) != canonical_of({"a": [1]})
    assert canonical_of({"a": False}) != canonical_of({"a": 0})


def test_a_float_is_the_decimal_that_its_sender_wrote():
    assert canonical_of({"a": 1e22}) == canonical_of('{"a": 10000000000000000000000}')
    assert canonical_of({"a": 0.1}) == canonical_of('{"a": 0.1}')
    assert canonical_of({"a": -0.0}) == canonical_of('{"a": 0}')


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ('{"a": 0.1000000000000000055, "b": [true, null]}', {"a": 0.1, "b": [True, None]}),
        ('{"a": 12345678901234567890}', '{"a": 12345678901234567000}'),
        ('{"a": {"b": 1.0}}', '{"a": {"b": 1}}'),
        ('{"a": -0.0}', '{"a": 0}'),
        ('{"a":1,"a":2}', {"a": 2}),
        ('{"b":1,"a":2}', {"a": 2, "b": 1}),
        ("", "{}"),
    ],
)
def test_numbers_are_doubled_as_parsers_read_them(one: Json, other: Json):
    assert doubled_of(one) == doubled_of(other) is not None


@pytest.mark.parametrize(
    "arguments",
    [
        "x",
        "[]",
        '{"a": 1e400}',
        '{"a": NaN}',
        '{"a": [1e999999999]}',
        {"a": 10**400},
        '{"a": "\ud800"}',
        "{" * 5000,
        [],
        1,
    ],
)
def test_what_no_double_can_hold_has_no_doubled_form(arguments: Json):
    assert doubled_of(arguments) is None


def test_the_doubled_forms_of_true_and_one_differ():
    assert doubled_of({"a": [True]}) != doubled_of({"a": [1]})
    assert doubled_of({"a": "1"}) != doubled_of({"a": 1})
