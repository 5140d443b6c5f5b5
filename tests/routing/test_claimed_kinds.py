"""Claimed kinds: what each is named by."""

import pytest

from sessions.routing.claimed_kinds import (
    ENVIRONMENT,
    EPISODE,
    EPISODE_STOPS,
    MCP_SESSION,
    MCP_SESSIONS,
    ROLLOUT_STOP,
    ROLLOUT_STOPS,
    environment_kind,
    episode_kind,
)
from sessions.routing.kinds import BodyNaming, Ownership, SessionKind

BODY = BodyNaming(
    field="session_id", seed_routes=frozenset({"/seed"}), close_routes=frozenset({"/close"})
)
EPISODES = episode_kind("X-NeMo-Gym-Episode-Token", b"run")
ENVIRONMENTS = environment_kind(cookie="env", token_header="X-Env-Token", body=BODY)


@pytest.mark.parametrize(
    ("kind", "name"),
    [
        (EPISODES, EPISODE),
        (ENVIRONMENTS, ENVIRONMENT),
        (MCP_SESSIONS, MCP_SESSION),
        (ROLLOUT_STOPS, ROLLOUT_STOP),
        (EPISODE_STOPS, EPISODE),
    ],
)
def test_a_claimed_kind_has_its_name_and_no_place_for_an_id(kind: SessionKind, name: str):
    assert (kind.name, kind.ownership, kind.path_prefix) == (name, Ownership.CLAIM, None)


def test_an_episode_is_named_by_its_header_alone():
    assert [naming.name for naming in EPISODES.headers] == [b"x-nemo-gym-episode-token"]
    others = (EPISODES.cookie, EPISODES.mcp_token, EPISODES.path_claim, EPISODES.body)
    assert others == (None,) * 4


def test_an_environments_session_is_named_by_cookie_token_and_body():
    assert ENVIRONMENTS.cookie is not None
    assert ENVIRONMENTS.mcp_token is not None
    assert (ENVIRONMENTS.cookie.name, ENVIRONMENTS.mcp_token.name) == ("env", b"x-env-token")
    assert ENVIRONMENTS.body is BODY
