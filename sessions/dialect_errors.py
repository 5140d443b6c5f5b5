"""Errors about what an engine speaks, in the same shape as all others.

Apart from `sessions.errors` only because one file shall stay small; the same rules hold.

Spec: docs/errors.md#statuses
"""

from __future__ import annotations

from sessions.errors import EngineReplyUnusableError


class EngineDialectUnknownError(EngineReplyUnusableError):
    """The engine answers, but not what kind of engine it is."""

    code = "engine_dialect_unknown"
    should_retry = False
