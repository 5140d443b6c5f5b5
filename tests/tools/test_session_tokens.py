"""Session tokens: what they say, who can read them, and what is none."""

from __future__ import annotations

import base64
import json

import pytest
from itsdangerous import URLSafeSerializer

from sessions.errors.seeded_sessions import BadSessionTokenError
from sessions.routing.readers import read_session_token
from sessions.tools.session_tokens import SessionToken, SessionTokens

SECRET = b"a secret of a test"
TOKENS = SessionTokens("Maze", SECRET)


@pytest.mark.parametrize("session_id", ["s1", "ünï", "x" * 1024])
def test_a_token_is_read_by_its_environment_and_by_the_router(session_id: str):
    text = TOKENS.sign(session_id, {"b", "a"})
    assert TOKENS.read(text) == SessionToken(session_id, frozenset({"a", "b"}))
    assert read_session_token(text.encode()) == session_id
    assert TOKENS.sign(session_id, ["a", "b"]) == text, "it does not change"


@pytest.mark.parametrize(
    "text",
    [
        "",
        "garbage",
        "é",
        SessionTokens("Maze", b"x").sign("s1", []),
        SessionTokens("Chess", SECRET).sign("s1", []),
        TOKENS.sign("s1", [])[:-1],
        TOKENS.sign("s1", []) + "x",
        base64.urlsafe_b64encode(json.dumps({"sid": "s1", "tools": []}).encode()).decode(),
    ],
)
def test_what_this_run_did_not_sign_for_this_class_is_none(text: str):
    with pytest.raises(BadSessionTokenError):
        TOKENS.read(text)


def test_a_token_has_one_text():
    text = TOKENS.sign("s1", ["a"])
    alike = [text[:-1] + chr(ord(text[-1]) + step) for step in (-1, 1)]
    for other in alike:
        with pytest.raises(BadSessionTokenError):
            TOKENS.read(other)


@pytest.mark.parametrize("content", [[], {}, {"sid": "s"}, {"sid": "s", "tools": 3}, "text", None])
def test_what_is_well_signed_and_says_something_else_is_none(content: object):
    serializer = TOKENS._serializer
    assert isinstance(serializer, URLSafeSerializer)
    with pytest.raises(BadSessionTokenError):
        TOKENS.read(serializer.dumps(content))
