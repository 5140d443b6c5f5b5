"""Sessions that are named wrongly, were never there, or ended.

Spec: docs/errors.md#statuses
"""

from __future__ import annotations

from sessions.errors.client_visible import RequestError


class BadSessionIdError(RequestError):
    """A session id outside of the grammar."""

    code = "bad_session_id"


class BadSessionKeyError(RequestError):
    """A session key whose signature is not ours."""

    status = 401
    type = "authentication_error"
    code = "bad_session_key"


class UnknownSessionError(RequestError):
    """No session of that id was ever created here."""

    status = 404
    type = "not_found_error"
    code = "session_not_found"


class GoneSessionError(RequestError):
    """A session that was deleted, expired, or is closing; the message says which."""

    status = 410
    type = "gone_error"
    code = "session_gone"
