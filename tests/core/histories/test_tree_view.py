from array import array
from dataclasses import replace

from sessions.core.engine_replies.turn_facts import TurnFacts
from sessions.core.histories.checkpoint import Checkpoint
from sessions.core.histories.tree import TreeHistory
from sessions.core.histories.tree_view import leaf_of, tree_of
from sessions.core.texts.shared_ids import SharedIds
from tests.support.histories import checkpoint_of, reply, user


def commit(history: TreeHistory, sent: list[dict[str, object]], text: str, **facts: object) -> None:
    plan = history.plan(sent)
    made = checkpoint_of(plan, text)
    checkpoint: Checkpoint = replace(
        made,
        ids=SharedIds(array("I", range(10))),
        facts=TurnFacts(log_probs=array("d"), **facts),  # type: ignore[arg-type]
        response_id=f"chat-{text}" if text != "c" else "",
    )
    history.commit(plan, reply(text), checkpoint)


def test_a_tree_tells_its_turns_and_its_leaves():
    history = TreeHistory(10)
    commit(history, [user("1")], "a", prompt_count=4, committed_at=5.5, finish_reason="stop")
    commit(history, [user("1"), reply("a"), user("2")], "b", prompt_count=8, finish_reason="length")
    commit(history, [user("1"), reply("a"), user("3")], "c", prompt_count=9)
    commit(history, [user("4")], "d", prompt_count=1)
    told = tree_of(history.nodes)
    assert told["nodes"][:2] == [
        {
            "id": "n0",
            "parent": None,
            "seq": 0,
            "truncated": False,
            "committed_at": 5.5,
            "completion_span": [4, 10],
            "num_tokens": 10,
            "response_id": "chat-a",
        },
        {
            "id": "n1",
            "parent": "n0",
            "seq": 1,
            "truncated": True,
            "committed_at": 0.0,
            "completion_span": [8, 10],
            "num_tokens": 10,
            "response_id": "chat-b",
        },
    ]
    assert told["nodes"][2]["response_id"] is None
    assert [node["parent"] for node in told["nodes"]] == [None, "n0", "n0", None]
    assert told["leaves"] == [
        {"node_id": "n1", "path_node_ids": ["n0", "n1"]},
        {"node_id": "n2", "path_node_ids": ["n0", "n2"]},
        {"node_id": "n3", "path_node_ids": ["n3"]},
    ]


def test_a_leaf_tells_who_leads_to_it():
    history = TreeHistory(10)
    commit(history, [user("1")], "a", prompt_count=4)
    assert leaf_of(history.nodes[0]) == {"node_id": "n0", "path_node_ids": ["n0"]}


def test_a_tree_without_turns_tells_none():
    assert tree_of([]) == {"nodes": [], "leaves": []}
