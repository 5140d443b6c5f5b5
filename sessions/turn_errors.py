"""Errors of turns that a session's own rules refuse, in the same shape as all others.

Apart from `sessions.errors` only because one file shall stay small; the same rules hold. All of
them are final: the same request will never work.

Spec: docs/errors.md#statuses
"""

from __future__ import annotations

from sessions.errors import ClientVisibleError, UnprocessableError


class TurnLimitError(UnprocessableError):
    """The session has as many turns as it may have."""

    code = "turn_limit_reached"


class TokenLimitError(UnprocessableError):
    """The session has as many tokens as it may have."""

    code = "token_limit_reached"


class TruncatedTurnError(UnprocessableError):
    """A request that goes on from a reply that was cut off at its limit of tokens."""

    code = "turn_truncated"


class IdempotencyKeyReusedError(UnprocessableError):
    """An idempotency key that the session has seen with another body."""

    code = "idempotency_key_reused"


class MatcherFailedError(ClientVisibleError):
    """The matcher that `SESSIONS_MATCHER` names raised, or gave no bool; the log has the cause."""

    code = "matcher_failed"
