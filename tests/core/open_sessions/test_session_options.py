import json

import pytest

from sessions.core.open_sessions.session_options import (
    DEFAULT_OPTIONS,
    SessionMode,
    SessionOptions,
    parse_session_options,
)
from sessions.core.texts.json_text import Json
from sessions.errors.client_visible import RequestError
from sessions.settings import SESSION_MODES

LIMITED = SessionOptions(max_turns=10, max_session_tokens=1000, max_tree_turns=7)


@pytest.mark.parametrize("raw", [b"", b" \r\n", b"{}", b'{"mode":null,"sampling":null}'])
def test_what_is_not_said_is_as_the_settings_say(raw: bytes):
    assert parse_session_options(raw, LIMITED) == LIMITED


def test_every_member_is_taken():
    body = {
        "mode": "tree",
        "sampling": {"temperature": 1},
        "max_turns": 10,
        "max_session_tokens": 1,
    }
    assert parse_session_options(json.dumps(body).encode(), LIMITED) == SessionOptions(
        mode=SessionMode.TREE,
        sampling={"temperature": 1},
        max_turns=10,
        max_session_tokens=1,
        max_tree_turns=7,
    )


def test_a_limit_is_free_where_the_settings_have_none():
    found = parse_session_options(b'{"max_turns":1000000}', DEFAULT_OPTIONS)
    assert found.max_turns == 1000000
    with pytest.raises(RequestError, match=str(1 << 50)):
        parse_session_options(b'{"max_turns":%d}' % ((1 << 50) + 1), DEFAULT_OPTIONS)


@pytest.mark.parametrize(
    ("member", "value"),
    [
        ("mode", "forest"),
        ("mode", ["linear"]),
        ("mode", True),
        ("max_turns", 0),
        ("max_turns", 11),
        ("max_turns", True),
        ("max_turns", 1.0),
        ("max_session_tokens", 1001),
        ("sampling", "hot"),
        ("maxturns", 1),
        ("session_id", "mine"),
    ],
)
def test_what_cannot_be_is_refused_by_name(member: str, value: Json):
    with pytest.raises(RequestError) as caught:
        parse_session_options(json.dumps({member: value}).encode(), LIMITED)
    assert caught.value.param == member
    assert caught.value.status == 400


@pytest.mark.parametrize("raw", [b"[]", b"null", b"mode=linear", b'{"mode":', b"\xff"])
def test_what_is_no_object_is_refused(raw: bytes):
    with pytest.raises(RequestError):
        parse_session_options(raw, LIMITED)


def test_a_very_long_name_is_cut_in_the_refusal():
    with pytest.raises(RequestError) as caught:
        parse_session_options(json.dumps({"x" * 5000: 1}).encode(), LIMITED)
    assert len(caught.value.message) < 200


def test_the_modes_of_the_settings_are_those_of_sessions():
    assert [mode.value for mode in SessionMode] == list(SESSION_MODES)


def test_a_session_chooses_its_mode():
    trees = SessionOptions(mode=SessionMode.TREE)
    assert parse_session_options(b"{}", trees).mode is SessionMode.TREE
    assert parse_session_options(b'{"mode":"linear"}', trees).mode is SessionMode.LINEAR
