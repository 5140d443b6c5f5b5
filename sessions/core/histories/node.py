"""One turn of a history and what leads to it, whatever the shape of the history is.

Nodes never change and know only those before them, so a list of them is a picture of a history at
one moment: it stays what it was while turns go on.

Must not know how requests attach.

Spec: docs/sessions.md#trajectory
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final

from sessions.core.histories.checkpoint import Checkpoint
from sessions.core.texts.json_text import JsonObject

_TRUNCATED: Final = "length"


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Node:
    """One recorded turn; compared by identity.

    Attributes:
        seq: How many turns the session had recorded before it; in a linear history, how many lead
            to it.
        parent: The turn that it goes on from; None if it begins a conversation.
        checkpoint: Its tokens and its record.
        added: The messages that it adds to those of its parent, its reply last.
    """

    seq: int
    parent: Node | None = field(repr=False)
    checkpoint: Checkpoint
    added: Sequence[JsonObject]

    @property
    def node_id(self) -> str:
        """Its name within the session."""
        return node_id_of(self.seq)

    @property
    def is_truncated(self) -> bool:
        """Whether the model was cut off at a limit of tokens."""
        return self.checkpoint.facts.finish_reason == _TRUNCATED

    @property
    def path(self) -> list[Node]:
        """The turns that lead to it and itself, from the first on."""
        found: list[Node] = []
        node: Node | None = self
        while node is not None:
            found.append(node)
            node = node.parent
        return found[::-1]

    @property
    def messages(self) -> list[JsonObject]:
        """The conversation up to its reply; a new list of shared messages."""
        return [message for node in self.path for message in node.added]


def node_id_of(seq: int) -> str:
    """The name of the node of a number."""
    return f"n{seq}"


def leaves_of(nodes: Sequence[Node]) -> list[Node]:
    """Those of some nodes that none of them goes on from, in the same order."""
    parents = {node.parent for node in nodes}
    return [node for node in nodes if node not in parents]
