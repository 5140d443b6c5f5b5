"""What a session's history must be able to do, whatever its shape.

`plan` decides, without changing anything, how a request attaches; `commit` applies the plan once
the reply is there. A plan is only applied if `can_commit` says so at that moment.

Must not know templates, engines or HTTP.

Spec: docs/sessions.md#trajectory
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from sessions.core.histories.checkpoint import Checkpoint, Plan
from sessions.core.histories.node import Node
from sessions.core.records.record import Record
from sessions.core.texts.json_text import JsonObject


class History(Protocol):
    """See the module docstring."""

    @property
    def is_tree(self) -> bool:
        """Whether turns can branch."""

    @property
    def head(self) -> Checkpoint | None:
        """The newest checkpoint."""

    @property
    def messages(self) -> list[JsonObject]:
        """The messages that lead to the head, its sampled reply included; a copy of the list."""

    @property
    def records(self) -> list[Record]:
        """The records of all checkpoints, oldest first."""

    @property
    def nodes(self) -> list[Node]:
        """All turns, oldest first; the last one is the head's. Made anew, and never changed."""

    def plan(self, sent: Sequence[JsonObject]) -> Plan:
        """Decide how a request attaches.

        Args:
            sent: The request's messages.

        Returns:
            The plan; nothing was changed.

        Raises:
            ClientVisibleError: A session of this shape does not take the request.
        """

    def can_commit(self, plan: Plan) -> bool:
        """Whether a plan still holds."""

    def label_of(self, plan: Plan) -> JsonObject:
        """Members that the record of a turn with that plan gets; right until the next commit."""

    def commit(self, plan: Plan, reply: JsonObject, checkpoint: Checkpoint) -> list[Checkpoint]:
        """Apply a plan.

        Args:
            plan: A plan that `can_commit`.
            reply: The sampled assistant message.
            checkpoint: The turn; its `message_end` counts the reply.

        Returns:
            The checkpoints that are no longer part of the history, oldest first.
        """
