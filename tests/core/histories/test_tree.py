import pytest

from sessions.core.histories.tree import TreeHistory
from sessions.errors.client_visible import UnprocessableError
from sessions.errors.turns import TruncatedTurnError, TurnLimitError
from tests.support.histories import Message, apply, names_of, reply, turn, user

HISTORY: list[Message] = [user("1"), reply("a"), user("2"), reply("b")]


@pytest.fixture
def tree() -> TreeHistory:
    """Two turns, one after the other."""
    history = TreeHistory(1024)
    turn(history, HISTORY[:1], "a")
    turn(history, HISTORY[:3], "b")
    return history


def parents_of(tree: TreeHistory) -> dict[str, str | None]:
    """The names of records to those of their parents; siblings of one name are told apart by *."""
    names: dict[object, str] = {}
    for node in tree.nodes:
        (name,) = names_of([node.checkpoint.record])
        names[node] = name + "*" * list(names.values()).count(name)
    return {
        name: None if node.parent is None else names[node.parent]
        for node, name in zip(tree.nodes, names.values(), strict=True)
    }


def base_of(tree: TreeHistory, sent: list[Message]) -> str | None:
    base = tree.plan(sent).base
    return None if base is None else names_of([base.record])[0]


def test_another_question_becomes_a_branch_and_drops_nothing(tree: TreeHistory):
    assert turn(tree, [*HISTORY[:2], user("other")], "c") == []
    assert parents_of(tree) == {"a": None, "b": "a", "c": "a"}
    assert names_of(tree.records) == ["a", "b", "c"]


def test_the_same_turn_again_becomes_a_sibling(tree: TreeHistory):
    turn(tree, HISTORY[:3], "b2")
    assert parents_of(tree) == {"a": None, "b": "a", "b2": "a"}


def test_going_back_by_any_number_of_turns_is_a_branch(tree: TreeHistory):
    turn(tree, [*HISTORY, user("3")], "c")
    turn(tree, [user("other"), *HISTORY[1:]], "d")
    assert parents_of(tree)["d"] is None
    turn(tree, [*HISTORY[:2], user("5")], "e")
    assert parents_of(tree)["e"] == "a"


def test_both_branches_go_on(tree: TreeHistory):
    turn(tree, HISTORY[:3], "b2")
    assert base_of(tree, [*HISTORY, user("3")]) == "b"
    assert base_of(tree, [*HISTORY[:3], reply("b2"), user("3")]) == "b2"


def test_a_compacted_conversation_becomes_a_root_that_goes_on(tree: TreeHistory):
    summary = [user("what was said so far: 1, a, 2, b")]
    turn(tree, summary, "s")
    turn(tree, [*summary, reply("s"), user("3")], "t")
    assert parents_of(tree) == {"a": None, "b": "a", "s": None, "t": "s"}


def test_a_sub_agent_and_its_parent_go_on_side_by_side(tree: TreeHistory):
    task = [user("you are a sub-agent")]
    turn(tree, task, "s")
    turn(tree, [*HISTORY, user("3")], "c")
    turn(tree, [*task, reply("s"), user("go on")], "t")
    turn(tree, [*HISTORY, user("3"), reply("c"), user("4")], "d")
    assert parents_of(tree) == {"a": None, "b": "a", "s": None, "c": "b", "t": "s", "d": "c"}


def test_a_question_by_the_way_leaves_the_conversation_alone(tree: TreeHistory):
    turn(tree, [*HISTORY, user("a title, please")], "title")
    assert base_of(tree, [*HISTORY, user("3")]) == "b"


def test_the_deepest_turn_is_gone_on_from(tree: TreeHistory):
    injected = [*HISTORY, user("3")]
    turn(tree, injected, "c")
    assert base_of(tree, [*injected, reply("c"), user("4")]) == "c"
    assert base_of(tree, [*injected, reply("of the client"), user("4")]) == "b"


def test_of_turns_with_the_same_conversation_the_latest_is_gone_on_from(tree: TreeHistory):
    turn(tree, HISTORY[:3], "b")
    latest = tree.nodes[-1]
    plan = tree.plan([*HISTORY, user("3")])
    assert plan.base is latest.checkpoint
    # One that got there in one turn has the same conversation, too.
    turn(tree, [user("x")], "y")
    assert tree.plan([*HISTORY, user("3")]).base is latest.checkpoint


def test_turns_that_run_at_once_become_siblings(tree: TreeHistory):
    plans = [tree.plan([*HISTORY, user("3")]) for _ in range(3)]
    for plan, text in zip(plans, ["c", "d", "e"], strict=True):
        assert tree.can_commit(plan)
        apply(tree, plan, text)
    assert [parents_of(tree)[name] for name in ("c", "d", "e")] == ["b", "b", "b"]


def test_of_first_turns_that_run_at_once_each_becomes_a_root():
    tree = TreeHistory(10)
    plans = [tree.plan([user("1")]) for _ in range(2)]
    for plan in plans:
        assert tree.can_commit(plan)
        apply(tree, plan, "a")
    assert parents_of(tree) == {"a": None, "a*": None}


def test_a_turn_keeps_its_own_spelling(tree: TreeHistory):
    turn(tree, [{**user("1"), "name": "x"}], "z")
    assert tree.messages == [{**user("1"), "name": "x"}, reply("z")]
    assert tree.nodes[0].messages == HISTORY[:2]


def test_messages_of_a_path_are_kept_once(tree: TreeHistory):
    for text in ("c", "d"):
        turn(tree, [*HISTORY, user("3")], text)
    first, second = tree.nodes[-2:]
    assert [len(node.added) for node in (first, second)] == [2, 2]
    assert all(a is b for a, b in zip(first.messages[:4], second.messages[:4], strict=True))


def test_a_reply_that_was_cut_off_cannot_be_gone_on_from():
    tree = TreeHistory(10)
    apply(tree, tree.plan([user("1")]), "a", "length")
    with pytest.raises(TruncatedTurnError) as caught:
        tree.plan([user("1"), reply("a"), user("2")])
    assert isinstance(caught.value, UnprocessableError)
    assert caught.value.param == "messages[1]"
    assert "messages[1] was cut off at its limit of tokens (turn n0" in caught.value.message
    assert base_of(tree, [user("1")]) is None, "it can be sampled again"


@pytest.mark.parametrize("reasons", [["stop", "length"], ["length", "stop"]])
def test_a_reply_that_was_cut_off_does_not_hide_one_that_says_the_same(reasons: list[str]):
    tree = TreeHistory(10)
    for reason in reasons:
        apply(tree, tree.plan([user("1")]), "a", reason)
    whole = tree.nodes[reasons.index("stop")]
    assert tree.plan([user("1"), reply("a"), user("2")]).base is whole.checkpoint


def test_the_turn_before_one_that_was_cut_off_can_be_gone_on_from(tree: TreeHistory):
    apply(tree, tree.plan([*HISTORY, user("3")]), "c", "length")
    assert base_of(tree, [*HISTORY, user("3")]) == "b"
    assert base_of(tree, [*HISTORY, user("3"), reply("not c"), user("4")]) == "b"


def test_a_full_tree_takes_no_turn_more():
    tree = TreeHistory(2)
    turn(tree, [user("1")], "a")
    plans = [tree.plan([user("2")]), tree.plan([user("3")])]
    apply(tree, plans[0], "b")
    assert not tree.can_commit(plans[1])
    with pytest.raises(TurnLimitError, match="has 2 turns") as caught:
        tree.plan([user("4")])
    assert (caught.value.status, caught.value.should_retry) == (422, False)
    assert names_of(tree.records) == ["a", "b"]


def test_the_record_of_a_turn_gets_its_place(tree: TreeHistory):
    told = tree.label_of(tree.plan([*HISTORY, user("3")]))
    assert told == {"node": {"id": "n2", "parent": "n1", "seq": 2}}
    told = tree.label_of(tree.plan([user("3")]))
    assert told == {"node": {"id": "n2", "parent": None, "seq": 2}}
