"""The linear history of one session: messages, checkpoints, and how a request attaches to them.

`plan` decides, without changing anything, on which checkpoint a request builds: the newest one if
the request begins with the whole history, one step back if its last turn is sent again or sent
differently, and the start if that was the first turn. `commit` applies a plan once the reply is
there, and only if the head is still the very checkpoint that it was at planning: a count would
not see that a turn was rolled back and another one committed in between.

Must not know templates, engines or HTTP.

Spec: docs/sessions.md#trajectory
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from sessions.core.histories.checkpoint import Checkpoint, Plan
from sessions.core.histories.node import Node
from sessions.core.matchers.fields import STRICT
from sessions.core.matchers.matcher import Matcher, matched_count_of
from sessions.core.records.record import Record
from sessions.core.texts.json_text import JsonObject
from sessions.errors.turns import HistoryMismatchError

MAX_ROLLBACK_TURNS: Final = 1


class LinearHistory:
    """See the module docstring."""

    __slots__ = ("_checkpoints", "_matcher", "_messages")

    is_tree = False

    def __init__(self, matcher: Matcher = STRICT) -> None:
        """Have no turn.

        Args:
            matcher: Says which messages are the same.
        """
        self._matcher = matcher
        self._messages: list[JsonObject] = []
        self._checkpoints: list[Checkpoint] = []

    @property
    def head(self) -> Checkpoint | None:
        """The newest checkpoint."""
        return self._checkpoints[-1] if self._checkpoints else None

    @property
    def messages(self) -> list[JsonObject]:
        """The history, the last sampled reply included; a copy of the list."""
        return list(self._messages)

    @property
    def records(self) -> list[Record]:
        """The records of all checkpoints, oldest first."""
        return [checkpoint.record for checkpoint in self._checkpoints]

    @property
    def nodes(self) -> list[Node]:
        """All turns, oldest first, each the parent of the next."""
        found: list[Node] = []
        start = 0
        for seq, checkpoint in enumerate(self._checkpoints):
            added = self._messages[start : checkpoint.message_end]
            parent = found[-1] if found else None
            found.append(Node(seq=seq, parent=parent, checkpoint=checkpoint, added=added))
            start = checkpoint.message_end
        return found

    def plan(self, sent: Sequence[JsonObject]) -> Plan:
        """Decide how a request attaches.

        Args:
            sent: The request's messages.

        Returns:
            The plan; nothing was changed.

        Raises:
            HistoryMismatchError: More turns would have to be rolled back than a session allows.
                The message names the first message and field that differ.
        """
        matched = matched_count_of(self._matcher, self._messages, sent)
        if matched == len(self._messages):
            kept = len(self._checkpoints)
        else:
            kept = sum(1 for c in self._checkpoints if c.message_end <= matched)
            if len(self._checkpoints) - kept > MAX_ROLLBACK_TURNS:
                raise self._mismatch(matched, sent, len(self._checkpoints) - kept)
        base = self._checkpoints[kept - 1] if kept else None
        end = base.message_end if base is not None else 0
        return Plan(head=self.head, base=base, stored=self._messages[:end], tail=sent[end:])

    def can_commit(self, plan: Plan) -> bool:
        """Whether nothing was committed or rolled back since the plan was made."""
        return self.head is plan.head

    def label_of(self, plan: Plan) -> JsonObject:
        """Nothing: a record's place among the others says all."""
        return {}

    def commit(self, plan: Plan, reply: JsonObject, checkpoint: Checkpoint) -> list[Checkpoint]:
        """Apply a plan: roll back what it drops, then append the turn.

        Args:
            plan: A plan that `can_commit`.
            reply: The sampled assistant message.
            checkpoint: The turn; its `message_end` counts the reply.

        Returns:
            The checkpoints that were rolled back, oldest first.
        """
        kept = self._checkpoints.index(plan.base) + 1 if plan.base is not None else 0
        dropped = self._checkpoints[kept:]
        self._checkpoints[kept:] = [checkpoint]
        self._messages[len(plan.stored) :] = [*plan.tail, reply]
        return dropped

    def _mismatch(
        self, matched: int, sent: Sequence[JsonObject], discarded: int
    ) -> HistoryMismatchError:
        place = f"messages[{matched}]"
        if matched < len(sent):
            found = self._matcher.difference_of(self._messages[matched], sent[matched])
            # matched_count_of stopped here, so there is a difference.
            path, stored, given = (found.path, found.stored, found.sent) if found else ("", "", "")
            place = f"{place}.{path}" if path else place
            what = f"{place} is {given}, the session has {stored}"
        else:
            what = (
                f"the request ends before {place}, the session has {len(self._messages)} messages"
            )
        return HistoryMismatchError(
            f"the messages do not continue the session: {what}; that would discard {discarded}"
            f" sampled turns, and a linear session goes back by at most {MAX_ROLLBACK_TURNS}",
            param=place,
        )
