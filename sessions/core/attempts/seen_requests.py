"""The chat requests that one session has seen: so that an attempt is sampled and recorded once.

An attempt is a retry if it says so, or if its idempotency key was seen before. A retry of a turn
in flight joins it, one of the newest turn gets that turn's reply; any other request is a new turn.
Of several turns with that body, one that was begun with the same key goes before others, one in
flight before one that was recorded, and a newer one before an older one. Where a session could not
record two turns in flight that are the same, the second joins the first without being marked.

Only replies of turns that are the newest of their branch are kept, so a linear session keeps one.
A turn that failed is forgotten at once: who comes later tries again.

Must not know how turns run or what a reply looks like.

Spec: docs/sessions.md#exactly-once
"""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import dataclass, replace
from typing import Final

from sessions.core.attempts.retry_marks import RetryMarks
from sessions.core.attempts.shared_turn import SharedTurn
from sessions.core.attempts.turn_reply import TurnReply
from sessions.core.histories.checkpoint import Checkpoint
from sessions.errors.turns import IdempotencyKeyReusedError

# Guesses: a client that retries does so within minutes, and its SDK has one key per turn.
KEYS_KEPT: Final = 256
REPLIES_KEPT: Final = 16
# A tree with many branches must not hold much more than its records do.
REPLIES_KEPT_BYTES: Final = 1 << 20


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class _Running:
    marks: RetryMarks
    turn: SharedTurn


@dataclass(frozen=True, slots=True, kw_only=True)
class _Answered:
    marks: RetryMarks
    reply: TurnReply


class SeenRequests:
    """See the module docstring."""

    __slots__ = ("_answered", "_joins_unmarked", "_keys", "_running")

    def __init__(self, *, joins_unmarked: bool) -> None:
        """Nothing was seen yet.

        Args:
            joins_unmarked: Whether the same body joins its like in flight without being marked.
        """
        self._joins_unmarked = joins_unmarked
        self._running: list[_Running] = []
        self._answered: OrderedDict[Checkpoint, _Answered] = OrderedDict()
        self._keys: OrderedDict[bytes, bytes] = OrderedDict()

    def find(self, marks: RetryMarks) -> SharedTurn | TurnReply | None:
        """What a request has to do with turns that are there; it counts as seen now.

        Args:
            marks: Of the request.

        Returns:
            A turn in flight to wait for, the reply of a turn that was recorded, or None if a turn
            has to be begun.

        Raises:
            IdempotencyKeyReusedError: Its key was seen with another body.
        """
        is_retry = self._note_key(marks) or marks.is_counted
        like: list[_Running | _Answered] = []
        if is_retry or self._joins_unmarked:
            like += self._running_like(marks)
        if is_retry:
            like += self._answered_like(marks)
        same_key = [known for known in like if marks.key and known.marks.key == marks.key]
        for known in (*same_key, *like):
            return known.turn if isinstance(known, _Running) else known.reply
        return None

    def begin(self, marks: RetryMarks, turn: SharedTurn) -> None:
        """Note a turn in flight until its task is done.

        Args:
            marks: Of the request that began it.
            turn: The turn.
        """
        running = _Running(marks=marks, turn=turn)
        self._running.append(running)
        turn.task.add_done_callback(lambda _: self._on_done(running))

    def _on_done(self, running: _Running) -> None:
        self._running.remove(running)
        task = running.turn.task
        if task.cancelled() or task.exception() is not None:
            return
        reply = task.result()
        if reply.turn is None:
            return
        for head in reply.former_heads:
            self._answered.pop(head, None)
        kept = replace(reply, former_heads=())  # it would hold on to what was rolled back
        self._answered[reply.turn] = _Answered(marks=running.marks, reply=kept)
        while self._has_too_many():
            self._answered.popitem(last=False)

    def _has_too_many(self) -> bool:
        """Whether the oldest reply is to be forgotten; the newest one never is."""
        size_bytes = sum(len(answered.reply.body or b"") for answered in self._answered.values())
        is_much = len(self._answered) > REPLIES_KEPT or size_bytes > REPLIES_KEPT_BYTES
        return is_much and len(self._answered) > 1

    def _note_key(self, marks: RetryMarks) -> bool:
        """Whether the key was seen before."""
        if not marks.key:
            return False
        known = self._keys.get(marks.key)
        if known is None:
            self._keys[marks.key] = marks.digest
            while len(self._keys) > KEYS_KEPT:
                self._keys.popitem(last=False)
        elif known != marks.digest:
            raise IdempotencyKeyReusedError(
                "the idempotency-key was sent before in this session, with another body"
            )
        return known is not None

    def _running_like(self, marks: RetryMarks) -> list[_Running]:
        """The turns in flight with that body, the newest first."""
        return [
            running
            for running in reversed(self._running)
            if running.marks.digest == marks.digest and not running.turn.is_given_up
        ]

    def _answered_like(self, marks: RetryMarks) -> list[_Answered]:
        """The kept replies to that body, the newest first."""
        kept = reversed(self._answered.values())
        return [answered for answered in kept if answered.marks.digest == marks.digest]
