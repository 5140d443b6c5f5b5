"""Readers: what a value names, whatever it holds."""

import base64
import json
import zlib

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from itsdangerous import TimestampSigner, URLSafeSerializer

from sessions.routing.episode_tokens import sign_episode_token
from sessions.routing.readers import (
    READERS,
    EpisodeTokenReader,
    name_of_reader,
    read_session_cookie,
    read_session_token,
    read_whole_value,
)

SECRET = b"run"
law = settings(derandomize=True, deadline=None)
texts = st.text(min_size=1, max_size=60)


def cookie_of(content: object) -> bytes:
    """As Starlette's SessionMiddleware writes it."""
    text = base64.b64encode(json.dumps(content).encode())
    return TimestampSigner("key").sign(text)


@law
@given(texts)
def test_a_session_cookie_names_its_session_whenever_it_was_written(session_id: str):
    assert read_session_cookie(cookie_of({"session_id": session_id, "x": [1]})) == session_id


@law
@given(texts, st.lists(st.text(max_size=30), max_size=40))
@example("s" * 50, ["tool"] * 500)
def test_a_session_token_names_its_session_packed_or_not(session_id: str, tools: list[str]):
    signed = URLSafeSerializer("key", salt="x").dumps({"sid": session_id, "tools": tools})
    assert read_session_token(f" {signed} ".encode()) == session_id


def test_long_tokens_are_packed():
    """Else the law above does not test what it says."""
    assert URLSafeSerializer("key").dumps({"sid": "s", "tools": ["tool"] * 500}).startswith(".")


@law
@given(st.binary(max_size=200))
@example(b".")
@example(b"..")
@example(b"." + base64.urlsafe_b64encode(b"not packed"))
@example(b"." + base64.urlsafe_b64encode(zlib.compress(b"[" * 100_000)))
@example(base64.b64encode(b"[" * 60_000))
@example(base64.b64encode(b'{"session_id": 1, "sid": {}}'))
@example(base64.b64encode(b'{"session_id": "", "sid": ""}'))
@example(base64.b64encode(b"[]"))
def test_any_other_value_names_nothing(value: bytes):
    assert read_session_cookie(value) is None
    assert read_session_token(value) is None
    assert EpisodeTokenReader(SECRET)(value) is None


def test_a_token_that_unpacks_to_more_than_a_head_names_nothing():
    content = json.dumps({"sid": "s", "x": "y" * 65536}).encode()
    text = b"." + base64.urlsafe_b64encode(zlib.compress(content)).rstrip(b"=") + b".signature"
    assert read_session_token(text) is None


def test_an_episode_token_names_its_episode_under_its_secret_only():
    token = sign_episode_token(SECRET, "r-a1", "nonce").encode()
    assert EpisodeTokenReader(SECRET)(b" " + token + b"\t") == "r-a1"
    assert EpisodeTokenReader(b"other")(token) is None


def test_the_secret_is_not_shown():
    assert "run" not in repr(EpisodeTokenReader(SECRET))


@pytest.mark.parametrize(("value", "key"), [(b" a b ", "a b"), (b"\xff", "ÿ"), (b" ", None)])
def test_a_whole_value_names_itself(value: bytes, key: str | None):
    assert read_whole_value(value) == key


@pytest.mark.parametrize("name", READERS)
def test_a_reader_is_known_by_its_name(name: str):
    assert name_of_reader(READERS[name](SECRET)) == name


def test_another_function_is_no_reader_that_travels():
    with pytest.raises(ValueError, match="no reader"):
        name_of_reader(lambda value: value.decode())
