"""What every history must do, whatever its shape."""

from collections.abc import Callable

import pytest

from sessions.core.histories.history import History
from sessions.core.histories.linear import LinearHistory
from sessions.core.histories.tree import TreeHistory
from tests.support.histories import Message, apply, names_of, reply, turn, user

HISTORY: list[Message] = [user("1"), reply("a"), user("2"), reply("b")]


@pytest.fixture(params=[LinearHistory, lambda: TreeHistory(1024)], ids=["linear", "tree"])
def empty(request: pytest.FixtureRequest) -> History:
    make: Callable[[], History] = request.param
    return make()


@pytest.fixture
def two_turns(empty: History) -> History:
    turn(empty, HISTORY[:1], "a")
    turn(empty, HISTORY[:3], "b")
    return empty


def test_an_empty_history_has_nothing_and_takes_any_messages(empty: History):
    assert (empty.head, empty.messages, empty.records, empty.nodes) == (None, [], [], [])
    plan = empty.plan([user("1"), reply("shot"), user("2")])
    assert (plan.base, list(plan.stored)) == (None, [])
    assert plan.tail == [user("1"), reply("shot"), user("2")]


def test_a_request_that_begins_with_the_whole_history_builds_on_the_head(two_turns: History):
    plan = two_turns.plan([*HISTORY, user("3")])
    assert plan.base is two_turns.head
    assert (plan.stored, plan.tail) == (HISTORY, [user("3")])


def test_the_history_again_adds_nothing_to_the_head(two_turns: History):
    plan = two_turns.plan(HISTORY)
    assert (plan.base, plan.tail) == (two_turns.head, [])


def test_planning_changes_nothing(two_turns: History):
    head = two_turns.head
    two_turns.plan(HISTORY[:3])
    two_turns.plan([*HISTORY, user("3")])
    assert two_turns.head is head
    assert two_turns.messages == HISTORY
    assert names_of(two_turns.records) == ["a", "b"]


def test_what_is_committed_becomes_the_head(two_turns: History):
    plan = two_turns.plan([*HISTORY, user("3")])
    assert two_turns.can_commit(plan)
    assert apply(two_turns, plan, "c") == []
    assert two_turns.head is not None
    assert names_of([two_turns.head.record]) == ["c"]
    assert two_turns.messages == [*HISTORY, user("3"), reply("c")]
    assert names_of(two_turns.records) == ["a", "b", "c"]
    assert [node.checkpoint.record for node in two_turns.nodes] == two_turns.records


def test_the_messages_that_are_given_are_a_copy(two_turns: History):
    two_turns.messages.clear()
    assert two_turns.messages == HISTORY


def test_the_session_keeps_its_own_spelling_of_what_matched(two_turns: History):
    turn(two_turns, [*({**message, "name": "x"} for message in HISTORY), user("3")], "c")
    assert two_turns.messages[:4] == HISTORY


def test_the_nodes_lead_to_the_head_one_after_the_other(two_turns: History):
    first, second = two_turns.nodes
    assert (first.parent, second.parent) == (None, first)
    assert (first.seq, second.seq) == (0, 1)
    assert second.checkpoint is two_turns.head
    assert (first.messages, second.messages) == (HISTORY[:2], HISTORY)


def test_the_nodes_stay_what_they_were(two_turns: History):
    nodes = two_turns.nodes
    turn(two_turns, [*HISTORY, user("3")], "c")
    assert [names_of([node.checkpoint.record])[0] for node in nodes] == ["a", "b"]
    assert nodes[-1].messages == HISTORY
