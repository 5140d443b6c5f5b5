"""Engines that are not there, silent, or not understood.

Spec: docs/errors.md#statuses
"""

from __future__ import annotations

from sessions.errors.client_visible import ClientVisibleError


class EngineUnreachableError(ClientVisibleError):
    """The engine cannot be reached, or the connection broke."""

    status = 502
    type = "upstream_error"
    code = "engine_unreachable"
    should_retry = True


class EngineReplyUnusableError(ClientVisibleError):
    """The engine answered something that no turn can be made of."""

    status = 502
    type = "upstream_error"
    code = "engine_reply_unusable"
    should_retry = True


class EngineTimeoutError(ClientVisibleError):
    """The engine went silent."""

    status = 504
    type = "upstream_error"
    code = "engine_timeout"
    should_retry = True


class EngineDialectUnknownError(EngineReplyUnusableError):
    """The engine answers, but not what kind of engine it is."""

    code = "engine_dialect_unknown"
    should_retry = False
