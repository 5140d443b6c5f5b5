"""Kinds: the readers of header values, and what the rollout kind is."""

import dataclasses

import pytest

from sessions.routing.claimed_kinds import (
    MCP_SESSIONS,
    ROLLOUT_STOPS,
    environment_kind,
    episode_kind,
)
from sessions.routing.kinds import (
    ROLLOUT,
    BodyNaming,
    CookieNaming,
    Ownership,
    SessionKind,
    read_bearer_key,
    read_plain_key,
)

HEX = b"0123456789abcdef" * 2
KEY = b"abc." + HEX


@pytest.mark.parametrize(
    "value", [b"Bearer " + KEY, b"bearer " + KEY, b"BEARER  " + KEY + b" \t", b"Bearer \t" + KEY]
)
def test_a_bearer_of_the_form_names_its_session(value: bytes):
    assert read_bearer_key(value) == "abc"


@pytest.mark.parametrize(
    "value",
    [
        b"",
        b"Bearer",
        b"Bearer ",
        b"Bearer sk-123",
        KEY,
        b"Basic " + KEY,
        b"Bearer" + KEY,
        b"Bearer " + KEY + b", x",
        b"Bearer \xff." + HEX,
        b"Token " + KEY,
    ],
)
def test_any_other_authorization_names_nothing(value: bytes):
    assert read_bearer_key(value) is None


def test_a_plain_key_names_its_session_without_a_scheme():
    assert read_plain_key(KEY + b" ") == "abc"
    assert read_plain_key(b"Bearer " + KEY) is None
    assert read_plain_key(b"sk-123") is None


def test_rollout_sessions_are_owned_by_hash_and_claim_nothing():
    assert ROLLOUT.ownership is Ownership.HASH
    claims = (ROLLOUT.path_claim, ROLLOUT.cookie, ROLLOUT.mcp_token, ROLLOUT.body)
    assert claims == (None, None, None, None)


def test_a_claimed_kind_can_be_described_in_data_alone():
    body = BodyNaming(
        field="session_id", seed_routes=frozenset({"/seed"}), close_routes=frozenset({"/close"})
    )
    cookie = CookieNaming(name="session", reader=read_plain_key)
    kind = SessionKind(name="environment", ownership=Ownership.CLAIM, cookie=cookie, body=body)
    assert kind.path_prefix is None
    with pytest.raises(dataclasses.FrozenInstanceError):
        kind.cookie = None  # type: ignore[misc]


@pytest.mark.parametrize(
    ("kind", "is_opened"),
    [
        (ROLLOUT, False),
        (MCP_SESSIONS, False),
        (ROLLOUT_STOPS, False),
        (episode_kind("X-Token", b"secret"), False),
        (environment_kind(cookie="c", token_header="x-t"), True),
        (
            SessionKind(
                name="bodies",
                ownership=Ownership.CLAIM,
                body=BodyNaming(
                    field="id", seed_routes=frozenset({"/seed"}), close_routes=frozenset()
                ),
            ),
            True,
        ),
    ],
)
def test_sessions_that_cookies_or_bodies_name_are_opened_by_name(
    kind: SessionKind, *, is_opened: bool
):
    assert kind.is_opened_by_name is is_opened
