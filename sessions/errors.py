"""Errors, by who is at fault, and the one shape in which a client sees them.

Status, type and code stand on the class. The status is part of the contract: SDKs retry 408, 409,
429 and every status from 500 up unless `x-should-retry` says otherwise, so a permanent condition
is a 400, 404, 410, 413 or 422. One place per chassis turns an error into a reply; its body is
`{"error": {"message", "type", "param", "code"}}`.

Spec: docs/errors.md
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import ClassVar


class SettingsError(Exception):
    """A setting that stops the start; the message is one line for the operator."""


class LocalProtocolError(Exception):
    """Our own code asked a state machine for a step that it does not have."""


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


class BadHeadError(RequestError):
    """The request head is not HTTP/1.1."""

    code = "bad_request_head"


class BadBodyError(RequestError):
    """The request body's framing is broken (a chunk size that is none, a cut body)."""

    code = "bad_request_body"


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


class GoneSessionError(RequestError):
    """A session that was deleted, expired, or is closing; the message says which."""

    status = 410
    type = "gone_error"
    code = "session_gone"


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


class UnprocessableError(RequestError):
    """Well-formed, but it cannot be done in this session's state."""

    status = 422
    code = "unprocessable"


class SamplesMisalignedError(UnprocessableError):
    """The recorded turns do not make one sequence of tokens; the message names the turn."""

    code = "samples_misaligned"


class ReplayMismatchError(UnprocessableError):
    """A turn's replay data does not fit its tokens (rows, type, shape); the message names both."""

    code = "replay_mismatch"


class ReplayGapError(UnprocessableError):
    """The replay data of the turns do not join from the first token on; the message says where."""

    code = "replay_gap"


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


class ShardGoneError(RequestError):
    """The shard that held the session died, and the group goes on without it."""

    status = 410
    type = "gone_error"
    code = "shard_gone"


class ShardDiedError(ClientVisibleError):
    """The shard that served a request without a session died in the middle of it."""

    status = 502
    type = "server_error"
    code = "shard_died"


class NotReadyError(ClientVisibleError):
    """The group is starting or draining, or a limit is reached for now."""

    status = 503
    type = "unavailable_error"
    code = "not_ready"
    should_retry = True
    retry_after_s: ClassVar[int | None] = 1


def starting_error() -> NotReadyError:
    """The answer of a group whose shards are not all ready."""
    return NotReadyError("the server is starting, try again soon")


def draining_error() -> NotReadyError:
    """The answer of a group that was told to stop."""
    return NotReadyError("the server is draining, try again later")


def stopped_error(graceful_s: float | None) -> GroupStoppedError:
    """The answer for what a stop overtook.

    Args:
        graceful_s: How long it had; None when there was no time for it.
    """
    why = "it was told to stop at once"
    if graceful_s is not None:
        why = f"it was told to stop, and {graceful_s:g} s for what was in flight are over"
    return GroupStoppedError(f"the server stopped before this request had an answer: {why}")


class OverloadedError(NotReadyError):
    """A queue or a limit of ours is full for now."""

    code = "overloaded"


class ReplayBudgetError(ClientVisibleError):
    """The stored replay is so far over its budget that no turn is begun."""

    status = 503
    type = "unavailable_error"
    code = "replay_budget_exceeded"


class GroupDyingError(ClientVisibleError):
    """A member of the group died and the group is going down; the message names it."""

    status = 503
    type = "unavailable_error"
    code = "group_dying"


class GroupStoppedError(ClientVisibleError):
    """The group was told to stop and ended before it had an answer; the message says why."""

    status = 503
    type = "unavailable_error"
    code = "group_stopped"


class ReplayStoreError(ClientVisibleError):
    """The store of replay blobs cannot keep or read a turn's: its disk failed or is full."""

    status = 503
    code = "replay_store_failed"


class InternalError(ClientVisibleError):
    """Our own fault; the log has the cause."""
