"""What every error that a client sees has in common, and its one shape.

Status, type and code stand on the class. The status is part of the contract: SDKs retry 408, 409,
429 and every status from 500 up unless `x-should-retry` says otherwise, so a permanent condition
is a 400, 404, 410, 413 or 422. One place per chassis turns an error into a reply; its body is
`{"error": {"message", "type", "param", "code"}}`.

Spec: docs/errors.md
"""

from __future__ import annotations

import json
from typing import ClassVar


class ClientVisibleError(Exception):
    """Anything that becomes an error reply.

    Attributes:
        message: What happened and what to do, lower case, no full stop.
        param: The request field at fault, or None.
        is_unrecorded_turn: Set on errors of a chat whose session was found; the reply says so.
        more_headers: Further reply headers, names lower-case, sent last.
    """

    status: ClassVar[int] = 500
    type: ClassVar[str] = "server_error"
    code: ClassVar[str] = "internal_error"
    should_retry: ClassVar[bool] = False
    retry_after_s: ClassVar[int | None] = None

    def __init__(self, message: str, *, param: str | None = None) -> None:
        super().__init__(message)
        self.message = message
        self.param = param
        self.is_unrecorded_turn = False
        self.more_headers: list[tuple[str, str]] = []

    @property
    def body(self) -> bytes:
        """The reply body, compact ASCII JSON."""
        return error_body(self.message, self.type, self.param, self.code)

    @property
    def headers(self) -> list[tuple[str, str]]:
        """Reply headers besides length and connection, in the order in which they are sent."""
        found = [
            ("content-type", "application/json"),
            ("x-should-retry", "true" if self.should_retry else "false"),
        ]
        if self.retry_after_s is not None:
            found.append(("retry-after", str(self.retry_after_s)))
        if self.is_unrecorded_turn:
            found.append(("x-turn-recorded", "false"))
        return found + self.more_headers


def error_body(message: str, kind: str, param: str | None, code: str | None) -> bytes:
    """The one error shape, as compact ASCII JSON."""
    error = {"message": message, "type": kind, "param": param, "code": code}
    return json.dumps({"error": error}, separators=(",", ":")).encode()


class RequestError(ClientVisibleError):
    """The client's request is at fault (4xx)."""

    status = 400
    type = "invalid_request_error"
    code = "invalid_request"


class UnprocessableError(RequestError):
    """Well-formed, but it cannot be done in this session's state."""

    status = 422
    code = "unprocessable"


class InternalError(ClientVisibleError):
    """Our own fault; the log has the cause."""
