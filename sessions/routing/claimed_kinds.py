"""The kinds whose owner is found by a claim.

The name of a kind is part of its claim keys, so whoever claims for a kind uses the name here.

Spec: docs/routing.md#kinds
"""

from __future__ import annotations

from typing import Final

from sessions.routing.kinds import (
    BodyNaming,
    CookieNaming,
    HeaderNaming,
    Ownership,
    SessionKind,
)
from sessions.routing.readers import (
    EpisodeTokenReader,
    read_session_cookie,
    read_session_token,
    read_whole_value,
)

EPISODE: Final = "episode"
ENVIRONMENT: Final = "environment"
MCP_SESSION: Final = "mcp-session"
ROLLOUT_STOP: Final = "rollout-stop"


def episode_kind(header: str, secret: bytes) -> SessionKind:
    """Episodes, named by the token in a header and by nothing else.

    Args:
        header: Its name.
        secret: The run's secret.
    """
    reader = EpisodeTokenReader(secret)
    naming = HeaderNaming(name=header.lower().encode("ascii"), under="/", reader=reader)
    return SessionKind(name=EPISODE, ownership=Ownership.CLAIM, headers=(naming,))


def environment_kind(
    *, cookie: str, token_header: str, body: BodyNaming | None = None
) -> SessionKind:
    """Sessions of an environment: by a cookie, or by a token of an MCP client.

    Args:
        cookie: Name of the cookie of Starlette's SessionMiddleware.
        token_header: Name of the header that carries the token.
        body: How seed and close requests name the session, if they do.
    """
    return SessionKind(
        name=ENVIRONMENT,
        ownership=Ownership.CLAIM,
        cookie=CookieNaming(name=cookie, reader=read_session_cookie),
        mcp_token=HeaderNaming(
            name=token_header.lower().encode("ascii"), under="/", reader=read_session_token
        ),
        body=body,
    )


MCP_SESSIONS: Final = SessionKind(
    name=MCP_SESSION,
    ownership=Ownership.CLAIM,
    mcp_token=HeaderNaming(name=b"mcp-session-id", under="/mcp", reader=read_whole_value),
)
ROLLOUT_STOPS: Final = SessionKind(
    name=ROLLOUT_STOP, ownership=Ownership.CLAIM, path_claim="ng-rollout"
)
# The claim of a running episode is what its stop has to find; behind the episode's own kind, so
# that a call whose path looks like a stop goes by its token.
EPISODE_STOPS: Final = SessionKind(
    name=EPISODE, ownership=Ownership.CLAIM, path_claim=ROLLOUT_STOPS.path_claim
)
