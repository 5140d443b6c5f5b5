"""The history of one session as a forest: nothing that was sampled is ever dropped.

A request attaches to the deepest turn whose whole conversation it begins with; of turns with the
same conversation, to the latest. What it has beyond that becomes a new branch, or a new root where
it begins with no turn. So retries, sub-agents, compacted conversations and questions by the way
need no rule of their own, and turns that are sampled at the same time from the same turn become
siblings.

Only two requests are refused: one that would be more turns than a session may have, and one that
goes on from a reply that was cut off at its limit of tokens.

Must not know templates, engines or HTTP.

Spec: docs/sessions.md#trees
"""

from __future__ import annotations

from collections.abc import Sequence

from sessions.core.histories.checkpoint import Checkpoint, Plan
from sessions.core.histories.message_index import MessageIndex, Place
from sessions.core.histories.node import Node, node_id_of
from sessions.core.matchers.fields import STRICT
from sessions.core.matchers.matcher import Matcher
from sessions.core.records.record import Record
from sessions.core.texts.json_text import JsonObject
from sessions.errors.turns import TruncatedTurnError, TurnLimitError


class TreeHistory:
    """See the module docstring."""

    __slots__ = ("_by_checkpoint", "_index", "_max_nodes", "_nodes", "_places")

    is_tree = True

    def __init__(self, max_nodes: int, matcher: Matcher = STRICT) -> None:
        """Have no turn.

        Args:
            max_nodes: How many turns there may be, 1 or more.
            matcher: Says which messages are the same.
        """
        self._max_nodes = max_nodes
        self._nodes: list[Node] = []
        self._by_checkpoint: dict[Checkpoint, Node] = {}
        self._places: dict[Node, Place[Node]] = {}
        self._index: MessageIndex[Node] = MessageIndex(matcher)

    @property
    def head(self) -> Checkpoint | None:
        """The newest checkpoint."""
        return self._nodes[-1].checkpoint if self._nodes else None

    @property
    def nodes(self) -> list[Node]:
        """All turns, in the order of their commits."""
        return list(self._nodes)

    @property
    def messages(self) -> list[JsonObject]:
        """The conversation of the newest turn."""
        return self._nodes[-1].messages if self._nodes else []

    @property
    def records(self) -> list[Record]:
        """The records of all turns, in the order of their commits."""
        return [node.checkpoint.record for node in self._nodes]

    def plan(self, sent: Sequence[JsonObject]) -> Plan:
        """Decide how a request attaches.

        Args:
            sent: The request's messages.

        Returns:
            The plan; nothing was changed.

        Raises:
            TruncatedTurnError: It goes on from a reply that was cut off at its limit of tokens.
            TurnLimitError: The session has as many turns as it may have.
        """
        if len(self._nodes) >= self._max_nodes:
            raise TurnLimitError(
                f"the session has {len(self._nodes)} turns, and a tree may have no more;"
                " open another one"
            )
        base = self._index.deepest(sent)
        if base is None:
            return Plan(head=self.head, base=None, stored=[], tail=sent)
        stored = base.messages
        if base.is_truncated:
            place = f"messages[{len(stored) - 1}]"
            raise TruncatedTurnError(
                f"{place} was cut off at its limit of tokens (turn {base.node_id} of the session);"
                " nothing can follow it: send the conversation without it to sample it again",
                param=place,
            )
        tail = sent[len(stored) :]
        return Plan(head=self.head, base=base.checkpoint, stored=stored, tail=tail)

    def can_commit(self, plan: Plan) -> bool:
        """Whether the session may have one more turn."""
        return len(self._nodes) < self._max_nodes

    def label_of(self, plan: Plan) -> JsonObject:
        """What the record of a turn says of its place; right until the next commit.

        Args:
            plan: How it attaches.
        """
        seq = len(self._nodes)
        parent = None if plan.base is None else self._by_checkpoint[plan.base].node_id
        return {"node": {"id": node_id_of(seq), "parent": parent, "seq": seq}}

    def commit(self, plan: Plan, reply: JsonObject, checkpoint: Checkpoint) -> list[Checkpoint]:
        """Add a turn.

        Args:
            plan: A plan that `can_commit`.
            reply: The sampled assistant message.
            checkpoint: The turn.

        Returns:
            Nothing: no turn is ever dropped.
        """
        parent = None if plan.base is None else self._by_checkpoint[plan.base]
        added = (*plan.tail, reply)
        node = Node(seq=len(self._nodes), parent=parent, checkpoint=checkpoint, added=added)
        start = None if parent is None else self._places[parent]
        place = self._places[node] = self._index.reach(start, added)
        # Of turns that said the same, one that was cut off must not hide one that goes on.
        if place.value is None or place.value.is_truncated or not node.is_truncated:
            place.value = node
        self._by_checkpoint[checkpoint] = node
        self._nodes.append(node)
        return []
