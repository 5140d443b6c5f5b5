import pytest

from sessions.core.histories.linear import LinearHistory
from sessions.errors.turns import HistoryMismatchError
from tests.support.histories import Message, apply, names_of, reply, turn, user


@pytest.fixture
def two_turns() -> LinearHistory:
    history = LinearHistory()
    turn(history, [user("1")], "a")
    turn(history, [user("1"), reply("a"), user("2")], "b")
    return history


HISTORY: list[Message] = [user("1"), reply("a"), user("2"), reply("b")]


def test_an_empty_session_renders_everything():
    plan = LinearHistory().plan([user("1")])
    assert (plan.head, plan.base, plan.tail) == (None, None, [user("1")])


def test_a_request_that_begins_with_the_history_extends_it(two_turns: LinearHistory):
    plan = two_turns.plan([*HISTORY, user("3")])
    assert plan.base is two_turns.head
    assert plan.tail == [user("3")]
    assert turn(two_turns, [*HISTORY, user("3")], "c") == []
    assert names_of(two_turns.records) == ["a", "b", "c"]


def test_the_exact_history_again_is_an_extension_by_nothing(two_turns: LinearHistory):
    plan = two_turns.plan(HISTORY)
    assert plan.base is two_turns.head
    assert plan.tail == []


def test_the_same_turn_again_replaces_it(two_turns: LinearHistory):
    assert turn(two_turns, HISTORY[:3], "b2") == ["b"]
    assert names_of(two_turns.records) == ["a", "b2"]
    assert two_turns.messages == [*HISTORY[:3], reply("b2")]


def test_another_question_in_the_last_turn_replaces_it(two_turns: LinearHistory):
    assert turn(two_turns, [*HISTORY[:2], user("other")], "b2") == ["b"]
    assert two_turns.messages == [*HISTORY[:2], user("other"), reply("b2")]


def test_dropping_the_last_turn_builds_on_the_one_before(two_turns: LinearHistory):
    plan = two_turns.plan(HISTORY[:2])
    assert plan.base is not None
    assert names_of([plan.base.record]) == ["a"]
    assert plan.tail == []


def test_a_first_turn_may_be_replaced_by_any_other():
    history = LinearHistory()
    turn(history, [user("1")], "a")
    assert turn(history, [user("quite different")], "b") == ["a"]
    assert history.messages == [user("quite different"), reply("b")]


def test_going_back_by_two_turns_is_refused_and_changes_nothing(two_turns: LinearHistory):
    with pytest.raises(HistoryMismatchError) as caught:
        two_turns.plan([user("other"), *HISTORY[1:]])
    assert caught.value.param == "messages[0].content"
    assert "messages[0].content is 'other', the session has '1'" in caught.value.message
    assert two_turns.messages == HISTORY
    assert turn(two_turns, [*HISTORY, user("3")], "c") == []


def test_a_request_that_is_too_short_names_the_message_that_is_missing(two_turns: LinearHistory):
    with pytest.raises(HistoryMismatchError) as caught:
        two_turns.plan([user("1")])
    assert caught.value.param == "messages[1]"
    assert "the request ends before messages[1]" in caught.value.message


def test_planning_changes_nothing(two_turns: LinearHistory):
    two_turns.plan(HISTORY[:3])
    assert two_turns.messages == HISTORY
    assert names_of(two_turns.records) == ["a", "b"]


def test_of_two_turns_from_one_state_only_the_first_can_commit(two_turns: LinearHistory):
    plans = [two_turns.plan([*HISTORY, user("3")]) for _ in range(2)]
    apply(two_turns, plans[0], "c")
    assert not two_turns.can_commit(plans[1])


def test_of_two_first_turns_only_the_first_can_commit():
    history = LinearHistory()
    plans = [history.plan([user("1")]) for _ in range(2)]
    assert history.can_commit(plans[1])
    apply(history, plans[0], "a")
    assert not history.can_commit(plans[1])


def test_a_turn_cannot_commit_after_roll_back_and_commit_brought_the_same_count(
    two_turns: LinearHistory,
):
    extension = two_turns.plan([*HISTORY, user("3")])
    turn(two_turns, HISTORY[:3], "b")
    assert len(two_turns.records) == 2
    assert not two_turns.can_commit(extension)


def test_a_turn_can_still_commit_when_a_competitor_only_planned(two_turns: LinearHistory):
    extension = two_turns.plan([*HISTORY, user("3")])
    two_turns.plan(HISTORY[:3])
    assert two_turns.can_commit(extension)


def test_the_session_keeps_its_own_spelling_of_what_matched(two_turns: LinearHistory):
    spelled = [{**message, "name": "x"} for message in HISTORY]
    turn(two_turns, [*spelled, user("3")], "c")
    assert two_turns.messages[:4] == HISTORY


def test_assistant_messages_of_the_client_are_no_checkpoints():
    history = LinearHistory()
    shots = [user("q"), reply("shot"), user("1")]
    turn(history, shots, "a")
    assert names_of(history.records) == ["a"]
    # Cutting into the examples discards the one sampled turn, which is allowed.
    assert history.plan([user("q")]).base is None
    extended = [*shots, reply("a"), user("2"), reply("injected"), user("3")]
    assert turn(history, extended, "b") == []
    assert history.messages == [*extended, reply("b")]
