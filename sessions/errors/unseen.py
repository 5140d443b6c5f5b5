"""Errors that no client of ours sees.

Spec: docs/errors.md
"""

from __future__ import annotations


class SettingsError(Exception):
    """A setting that stops the start; the message is one line for the operator."""


class LocalProtocolError(Exception):
    """Our own code asked a state machine for a step that it does not have."""


class LifespanEndedError(Exception):
    """The application's lifespan ended while its shard was serving; the shard cannot go on."""


class SimRefusalError(Exception):
    """The simulated engine refuses a request, in an engine's flat error form instead of ours.

    Attributes:
        message: What the engine says.
        status: HTTP status, also the body's `code`.
        type: The body's `type`.
        param: The request field at fault, or None.
    """

    def __init__(
        self,
        message: str,
        *,
        status: int = 400,
        type: str = "BadRequestError",  # noqa: A002 - the word of the wire format
        param: str | None = None,
    ) -> None:
        super().__init__(message)
        self.message = message
        self.status = status
        self.type = type
        self.param = param


class BrokenOutError(Exception):
    """An environment's code raised what would have ended more than its own request."""
