"""What a caller of the client must expect; every error of the package is a `SessionsClientError`.

These are apart from `sessions.errors`: there stands what a server answers, here what a program on
the other side of the wire sees of it. A status has one class where a caller treats it in a way of
its own, and is told by `StatusError.status` otherwise.

Spec: docs/errors.md#client
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Final


class SessionsClientError(Exception):
    """Base of all errors of the client; the message is one line."""


class UnreachableError(SessionsClientError):
    """No answer came: refused, reset, cut or timed out. Whether the server acted is unknown."""


class UnhealthyError(SessionsClientError):
    """`check` found the server not healthy; the message names what died or what is missing."""


class UnusableReplyError(SessionsClientError):
    """The answer says success, and is not what a sessile server sends."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ErrorDetails:
    """What an error reply says.

    Attributes:
        status: HTTP status.
        message: In words; the beginning of the body if it is not in the one error shape.
        type: The class of error, or "".
        code: The error's stable name, or "".
        param: The request field at fault, or None.
        should_retry: The server's `x-should-retry`, or None if it did not say.
        retry_after_s: Seconds after which it may work, or None if the server did not say.
    """

    status: int
    message: str
    type: str
    code: str
    param: str | None
    should_retry: bool | None
    retry_after_s: float | None


class StatusError(SessionsClientError):
    """The server refused the request; `details` has everything that it said."""

    def __init__(self, details: ErrorDetails) -> None:
        named = f" {details.code}" if details.code else ""
        super().__init__(f"{details.status}{named}: {details.message}")
        self.details = details

    @property
    def status(self) -> int:
        """HTTP status."""
        return self.details.status


class UnknownSessionError(StatusError):
    """404: no session of that id was ever created there."""


class GoneSessionError(StatusError):
    """410: the session was deleted, expired, or died with its shard; the message says which."""


class UnavailableError(StatusError):
    """503: starting, draining, overloaded or dying; `details.should_retry` tells if it passes."""


_CLASSES: Final[Mapping[int, type[StatusError]]] = MappingProxyType(
    {404: UnknownSessionError, 410: GoneSessionError, 503: UnavailableError}
)


def status_error(details: ErrorDetails) -> StatusError:
    """The error of the status's own class."""
    return _CLASSES.get(details.status, StatusError)(details)
