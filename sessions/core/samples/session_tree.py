"""The turns of a session as hooks see them: nothing here can be used to change the session.

A linear session is a tree whose turns have one child each, so a hook needs no case for it.

Must not know how samples are made.

Spec: docs/samples.md#hooks
"""

from __future__ import annotations

import copy
from array import array
from collections.abc import Sequence
from dataclasses import dataclass

from sessions.core.histories.node import Node, leaves_of
from sessions.core.texts.json_text import JsonObject


class Turn:
    """One recorded turn; compared by identity."""

    __slots__ = ("_node",)

    def __init__(self, node: Node) -> None:
        self._node = node

    @property
    def node_id(self) -> str:
        """Its name within the session."""
        return self._node.node_id

    @property
    def parent_id(self) -> str | None:
        """The name of the turn that it goes on from; None for a root."""
        return None if self._node.parent is None else self._node.parent.node_id

    @property
    def seq(self) -> int:
        """How many turns were recorded before it."""
        return self._node.seq

    @property
    def is_truncated(self) -> bool:
        """Whether the model was cut off at a limit of tokens."""
        return self._node.is_truncated

    @property
    def finish_reason(self) -> str:
        """The engine's word; "" if there was none."""
        return self._node.checkpoint.facts.finish_reason

    @property
    def committed_at(self) -> float:
        """Seconds since the epoch."""
        return self._node.checkpoint.facts.committed_at

    @property
    def response_id(self) -> str:
        """What the engine calls its reply; "" if it did not say."""
        return self._node.checkpoint.response_id

    @property
    def completion_span(self) -> tuple[int, int]:
        """Of its tokens, the index of the first that was sampled and the one after the last."""
        return self._node.checkpoint.facts.prompt_count, len(self._node.checkpoint.ids)

    @property
    def token_ids(self) -> array[int]:
        """Prompt and completion; a copy."""
        return self._node.checkpoint.ids.part(0, len(self._node.checkpoint.ids))

    @property
    def messages(self) -> list[JsonObject]:
        """The conversation up to its reply; a copy."""
        return copy.deepcopy(self._node.messages)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Leaf:
    """A turn that none goes on from, and those that lead to it; compared by identity.

    Attributes:
        path: From the root to the leaf's own turn, which is the last.
    """

    path: tuple[Turn, ...]

    @property
    def turn(self) -> Turn:
        """Its own turn."""
        return self.path[-1]

    @property
    def node_id(self) -> str:
        """The name of its turn."""
        return self.turn.node_id


@dataclass(frozen=True, slots=True, kw_only=True)
class SessionTree:
    """All turns of a session.

    Attributes:
        turns: In the order of their commits.
        leaves: Likewise.
    """

    turns: tuple[Turn, ...]
    leaves: tuple[Leaf, ...]


def session_tree_of(nodes: Sequence[Node]) -> SessionTree:
    """Show turns to hooks.

    Args:
        nodes: All turns, oldest first.
    """
    turns = {node: Turn(node) for node in nodes}
    leaves = [Leaf(path=tuple(turns[step] for step in leaf.path)) for leaf in leaves_of(nodes)]
    return SessionTree(turns=tuple(turns.values()), leaves=tuple(leaves))
