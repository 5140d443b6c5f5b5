"""A group that is not ready, full, dying or gone.

Spec: docs/errors.md#statuses
"""

from __future__ import annotations

from typing import ClassVar

from sessions.errors.client_visible import ClientVisibleError, RequestError


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
