"""Turns that cannot be prepared, or that the rules of a session refuse.

All but a matcher's own failure are final: the same request will never work.

Spec: docs/errors.md#statuses
"""

from __future__ import annotations

from sessions.errors.client_visible import ClientVisibleError, RequestError, UnprocessableError


class HistoryMismatchError(RequestError):
    """The messages neither extend the session's history nor go back by as much as it allows."""

    code = "history_mismatch"


class UnsupportedContentError(RequestError):
    """Well-formed content of which no tokens can be made (an image); `param` names the part."""

    code = "unsupported_content"


class ContextLengthError(RequestError):
    """The engine cannot hold the prompt and its completion."""

    code = "context_length_exceeded"


class UnrenderableMessageError(RequestError):
    """The chat template cannot render the messages; `param` names the message."""

    code = "unrenderable_message"


class RoleNotAppendableError(RequestError):
    """A message whose role may not follow a sampled reply; `param` names the message."""

    code = "role_not_appendable"


class BadTemplateKwargsError(RequestError):
    """`chat_template_kwargs` is no object, or changes what the family fixes."""

    code = "bad_template_kwargs"


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
