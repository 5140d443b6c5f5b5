"""A tree of turns as its readers see it: what the metadata of a session tells of it.

Must not know HTTP, or how requests attach.

Spec: docs/sessions.md#trees
"""

from __future__ import annotations

from collections.abc import Sequence

from sessions.core.histories.node import Node, leaves_of
from sessions.core.texts.json_text import JsonObject


def tree_of(nodes: Sequence[Node]) -> JsonObject:
    """The member `tree` of a session's metadata.

    Args:
        nodes: All turns, oldest first.
    """
    return {
        "nodes": [_node_of(node) for node in nodes],
        "leaves": [leaf_of(leaf) for leaf in leaves_of(nodes)],
    }


def leaf_of(leaf: Node) -> JsonObject:
    """One leaf: its name and the names of the turns that lead to it, its own last."""
    return {"node_id": leaf.node_id, "path_node_ids": [node.node_id for node in leaf.path]}


def _node_of(node: Node) -> JsonObject:
    checkpoint = node.checkpoint
    count = len(checkpoint.ids)
    return {
        "id": node.node_id,
        "parent": None if node.parent is None else node.parent.node_id,
        "seq": node.seq,
        "truncated": node.is_truncated,
        "committed_at": checkpoint.facts.committed_at,
        "completion_span": [checkpoint.facts.prompt_count, count],
        "num_tokens": count,
        "response_id": checkpoint.response_id or None,
    }
