import dataclasses
from array import array

import pytest

from sessions.core.samples.session_tree import SessionTree, session_tree_of
from tests.support.samples import node_of, turn_of


def tree() -> SessionTree:
    root = node_of(turn_of([1], [10], finish_reason="stop", committed_at=7.5), 0, None, "root")
    child = node_of(turn_of([1, 10, 2], [11, 12], finish_reason="length"), 1, root)
    other = node_of(turn_of([5], [6]), 2, None)
    return session_tree_of([root, child, other])


def test_turns_tell_what_they_are():
    root, child, other = tree().turns
    assert [turn.node_id for turn in (root, child, other)] == ["n0", "n1", "n2"]
    assert [turn.parent_id for turn in (root, child, other)] == [None, "n0", None]
    assert [turn.seq for turn in (root, child, other)] == [0, 1, 2]
    assert [turn.is_truncated for turn in (root, child, other)] == [False, True, False]
    assert (root.finish_reason, root.committed_at, root.response_id) == ("stop", 7.5, "")
    assert child.completion_span == (3, 5)
    assert child.token_ids == array("I", [1, 10, 2, 11, 12])
    assert root.messages == [
        {"role": "user", "content": "q"},
        {"role": "assistant", "content": "root"},
    ]


def test_leaves_lead_back_to_their_roots():
    found = tree()
    first, second = found.leaves
    assert first.path == found.turns[:2]
    assert first.turn is found.turns[1]
    assert (first.node_id, second.node_id) == ("n1", "n2")
    assert second.path == (found.turns[2],)


def test_what_a_hook_gets_cannot_change_the_session():
    found = tree()
    turn = found.turns[0]
    turn.token_ids[0] = 99
    turn.messages[0]["content"] = "changed"
    assert turn.token_ids[0] == 1
    assert turn.messages[0]["content"] == "q"
    for thing, name in ((found, "leaves"), (found.leaves[0], "path"), (turn, "seq")):
        with pytest.raises((dataclasses.FrozenInstanceError, AttributeError)):
            setattr(thing, name, ())
