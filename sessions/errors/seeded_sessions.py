"""Sessions that requests seed.

Each is told, and none begins a new session instead: a call that lost its session must fail.

Spec: docs/errors.md#statuses
"""

from __future__ import annotations

from sessions.errors.client_visible import ClientVisibleError, RequestError
from sessions.errors.episodes import EpisodeNotRunningError


class BadSessionCookieError(RequestError):
    """No session cookie, and no token either; or a cookie that this run did not sign.

    Without `WWW-Authenticate`, as for episode tokens.
    """

    status = 401
    type = "authentication_error"
    code = "bad_session_cookie"


class BadSessionTokenError(RequestError):
    """No session token where only one counts, or one that this run did not sign."""

    status = 401
    type = "authentication_error"
    code = "bad_session_token"


class ToolNotGrantedError(RequestError):
    """The session has the tool, and the token does not let its holder call it."""

    status = 403
    type = "permission_error"
    code = "tool_not_granted"


class SeedMismatchError(RequestError):
    """A session of that id was seeded by another payload; it stays as it is."""

    status = 409
    type = "conflict_error"
    code = "seed_mismatch"


class SessionReleasedError(RequestError):
    """The id is that of a session that was closed; an id is used once."""

    status = 409
    type = "conflict_error"
    code = "session_released"


class SessionNotOpenError(EpisodeNotRunningError):
    """The session was closed, stopped or expired, or never was seeded."""

    code = "session_not_open"


class ReleaseFailedError(ClientVisibleError):
    """The environment could not release the session; closing it again tries once more."""

    code = "release_failed"
    should_retry = True
