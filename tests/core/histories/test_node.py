from typing import Any

import pytest

from sessions.core.histories.linear import LinearHistory
from sessions.core.histories.node import Node, leaves_of, node_id_of
from tests.support.histories import checkpoint_of, reply, user


def node_of(seq: int, parent: Node | None, reason: str = "stop", *added: Any) -> Node:  # noqa: ANN401 - JSON
    checkpoint = checkpoint_of(LinearHistory().plan([user("1")]), "a", reason)
    return Node(seq=seq, parent=parent, checkpoint=checkpoint, added=added)


def test_a_path_begins_at_the_root():
    root = node_of(0, None)
    child = node_of(1, root)
    grandchild = node_of(2, child)
    assert grandchild.path == [root, child, grandchild]
    assert root.path == [root]


def test_the_messages_are_those_of_the_path():
    root = node_of(0, None, "stop", user("1"), reply("a"))
    child = node_of(1, root, "stop", reply("b"))
    assert child.messages == [user("1"), reply("a"), reply("b")]
    assert child.messages[0] is root.added[0]


def test_a_very_long_path_needs_no_recursion():
    node = node_of(0, None)
    for seq in range(1, 5000):
        node = Node(seq=seq, parent=node, checkpoint=node.checkpoint, added=())
    assert [step.seq for step in node.path] == list(range(5000))
    assert len(repr(node)) < 2000


def test_leaves_are_those_that_none_goes_on_from():
    root = node_of(0, None)
    nodes = [root, node_of(1, root), node_of(2, root), node_of(3, None)]
    assert leaves_of(nodes) == nodes[1:]
    assert leaves_of(nodes[:1]) == [root]
    assert leaves_of([]) == []


@pytest.mark.parametrize("reason", ["stop", "tool_calls", "abort", "", "length"])
def test_only_a_limit_of_tokens_truncates(reason: str):
    assert node_of(0, None, reason).is_truncated == (reason == "length")


def test_a_node_is_named_by_its_number():
    assert node_of(7, None).node_id == node_id_of(7) == "n7"
