"""Requests that are no HTTP/1.1 as it is spoken here, too large, too slow, or for no route.

Spec: docs/errors.md#statuses
"""

from __future__ import annotations

from collections.abc import Sequence

from sessions.errors.client_visible import RequestError


class BadHeadError(RequestError):
    """The request head is not HTTP/1.1."""

    code = "bad_request_head"


class BadBodyError(RequestError):
    """The request body's framing is broken (a chunk size that is none, a cut body)."""

    code = "bad_request_body"


class UnknownPathError(RequestError):
    """No such route."""

    status = 404
    type = "not_found_error"
    code = "not_found"


class MethodNotAllowedError(RequestError):
    """The route exists, the method does not; `allow` names those it has, none for CONNECT."""

    status = 405
    code = "method_not_allowed"

    def __init__(self, message: str, *, allow: Sequence[str] = ()) -> None:
        super().__init__(message)
        # It must be there (RFC 9110 section 15.5.6).
        self.more_headers.append(("allow", ", ".join(allow)))


class HeadTooSlowError(RequestError):
    """The head did not end in time."""

    status = 408
    type = "timeout_error"
    code = "head_timeout"


class BodyTooSlowError(RequestError):
    """The body stood still for too long."""

    status = 408
    type = "timeout_error"
    code = "body_timeout"


class BodyTooLargeError(RequestError):
    """The body is over the limit."""

    status = 413
    code = "body_too_large"


class PreconditionFailedError(RequestError):
    """The client wants the reply only under a condition that does not hold (RFC 9110, 13.1)."""

    status = 412
    code = "precondition_failed"


class RangeNotSatisfiableError(RequestError):
    """The byte range that is asked for has no byte (RFC 9110 section 15.5.17)."""

    status = 416
    code = "range_not_satisfiable"


class UpgradeRefusedError(RequestError):
    """WebSocket is not spoken here."""

    status = 426
    code = "upgrade_refused"

    @property
    def headers(self) -> list[tuple[str, str]]:
        """As for every error, and what is spoken instead (RFC 9110 section 15.5.22)."""
        return [*super().headers, ("upgrade", "HTTP/1.1")]


class HeadTooLargeError(RequestError):
    """The head is over the limit."""

    status = 431
    code = "head_too_large"
