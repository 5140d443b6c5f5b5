import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sessions.core.texts.json_text import (
    parse_client_json,
    parse_engine_json,
    render_ascii_json,
    render_json,
)

VALUES = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**53), 2**53)
    | st.text()
    | st.floats(allow_nan=False, allow_infinity=False),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=12,
)


@given(VALUES)
@settings(derandomize=True, deadline=None)
def test_what_is_read_can_be_written_and_read_again(value: object):
    text = json.dumps(value).encode()
    assert parse_engine_json(render_json(parse_client_json(text)))[0] == value


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"{",
        b"\xef\xbb\xbf{}",
        '{"a":"é"}'.encode("utf-16"),
        '{"a":"é"}'.encode("latin-1"),
        b'{"temperature":NaN}',
        b'{"temperature":1e999}',
        b'{"temperature":-1e999}',
        b"[" * 100_000,
        b"1" * 5000,
    ],
    ids=[
        "empty",
        "cut",
        "byte order mark",
        "utf-16",
        "latin-1",
        "NaN",
        "large",
        "low",
        "deep",
        "long number",
    ],
)
def test_a_client_body_that_is_no_json_is_a_value_error(body: bytes):
    with pytest.raises(ValueError, match=r"."):
        parse_client_json(body)


def test_the_last_of_two_equal_keys_wins():
    assert parse_client_json(b'{"n":1,"n":2}') == {"n": 2}


def test_a_lone_surrogate_is_kept_and_escaped_again():
    body = b'{"content":"a\\ud800b\xc3\xa9"}'
    assert parse_client_json(body) == {"content": "a\ud800bé"}
    value, is_strict = parse_engine_json(body)
    assert not is_strict
    assert render_json(value) == b'{"content":"a\\ud800b\\u00e9"}'


@pytest.mark.parametrize("number", [b"NaN", b"Infinity", b"-Infinity", b"1e999"])
def test_a_number_that_is_not_finite_becomes_null_when_an_engine_sends_it(number: bytes):
    value, is_strict = parse_engine_json(b'{"p":[' + number + b",1.5]}")
    assert (value, is_strict) == ({"p": [None, 1.5]}, False)
    assert render_json(value) == b'{"p":[null,1.5]}'


@pytest.mark.parametrize("body", [b"", b"<html>", b"\xff", b"[" * 100_000])
def test_an_engine_body_that_is_no_json_is_a_value_error(body: bytes):
    with pytest.raises(ValueError, match=r"."):
        parse_engine_json(body)


def test_ascii_json_has_no_character_that_ends_a_line_for_any_client():
    text = render_ascii_json({"a": "\u2028\u2029\u0085\x0b\x0c\x1c\r\n\ud800é"})
    assert text.isascii()
    assert len(text.splitlines()) == 1


def test_text_is_not_escaped_in_plain_json():
    assert render_json({"a": "é"}) == '{"a":"é"}'.encode()


def test_a_value_nested_more_deeply_than_the_fast_writer_allows_is_still_written():
    deep: object = 1
    for _ in range(400):
        deep = [deep]
    assert parse_engine_json(render_json(deep))[0] == deep
