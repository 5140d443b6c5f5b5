"""Kinds as text: they read back equal; anything else is a broken shard."""

import json

import pytest

from sessions.errors.unseen import LocalProtocolError
from sessions.routing.claimed_kinds import (
    MCP_SESSIONS,
    ROLLOUT_STOPS,
    environment_kind,
    episode_kind,
)
from sessions.routing.kind_text import kinds_of_text, kinds_to_text
from sessions.routing.kinds import ROLLOUT, BodyNaming, HeaderNaming, Ownership, SessionKind

SECRET = b"a run's secret"
BODY = BodyNaming(field="id", seed_routes=frozenset({"/b", "/a"}), close_routes=frozenset({"/c"}))
KINDS = (
    episode_kind("X-Token", SECRET),
    environment_kind(cookie="env", token_header="X-Env", body=BODY),
    MCP_SESSIONS,
    ROLLOUT_STOPS,
    ROLLOUT,
)
TEXT = kinds_to_text(KINDS)


def test_kinds_read_back_equal_in_their_order():
    assert kinds_of_text(TEXT, SECRET) == KINDS
    assert kinds_of_text(kinds_to_text(()), SECRET) == ()


def test_the_secret_does_not_travel_and_the_readers_secret_counts():
    assert SECRET not in TEXT
    assert kinds_of_text(TEXT, b"other") != KINDS


def test_a_reader_without_a_name_cannot_be_told():
    naming = HeaderNaming(name=b"x", under="/", reader=lambda _value: None)
    kind = SessionKind(name="own", ownership=Ownership.CLAIM, headers=(naming,))
    with pytest.raises(ValueError, match="no reader"):
        kinds_to_text([kind])


def changed(**parts: object) -> bytes:
    return json.dumps([json.loads(TEXT)[1] | parts]).encode()


@pytest.mark.parametrize(
    "text",
    [
        b"",
        b"{",
        b"\xff",
        b"1",
        b"[1]",
        b"[{}]",
        changed(ownership="NOBODY"),
        changed(headers=[{"name": "x", "under": "/", "reader": "unknown"}]),
        changed(headers=None),
        changed(cookie={"name": "x"}),
        changed(body=[]),
    ],
)
def test_text_that_says_no_kinds_is_an_error(text: bytes):
    with pytest.raises(LocalProtocolError, match="no kinds"):
        kinds_of_text(text, SECRET)
