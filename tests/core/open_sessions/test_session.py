import pytest

from sessions.core.open_sessions.session import Session
from sessions.core.open_sessions.session_options import SessionMode, SessionOptions
from sessions.errors.sessions import GoneSessionError
from sessions.errors.turns import TurnLimitError
from tests.support.histories import reply, turn, user


def test_an_ended_session_refuses_to_work_and_says_why():
    session = Session("x")
    session.check_open()
    session.end("was deleted")
    assert session.is_ended
    with pytest.raises(GoneSessionError, match="session x was deleted"):
        session.check_open()


def test_a_comparison_is_kept_until_a_turn_goes_on_from_it():
    session = Session("x")
    turn(session.history, [user("1")], "a")
    first = session.history.nodes[0].checkpoint
    assert session.known_mismatch(first) is None
    session.keep_mismatch(first, {"tito_session_mismatch": []})
    assert session.known_mismatch(first) == {"tito_session_mismatch": []}
    turn(session.history, [user("1"), reply("a"), user("2")], "b")
    second = session.history.nodes[1].checkpoint
    session.keep_mismatch(second, {})
    assert session.known_mismatch(second) == {}
    assert session.known_mismatch(first) is None


def test_a_comparison_of_a_turn_that_was_dropped_meanwhile_is_not_kept():
    session = Session("x")
    turn(session.history, [user("1")], "a")
    dropped = session.history.nodes[0].checkpoint
    turn(session.history, [user("2")], "b")
    session.keep_mismatch(dropped, {})
    assert session.known_mismatch(dropped) is None


def test_comparisons_are_kept_for_all_leaves_of_a_tree():
    session = Session("x", SessionOptions(mode=SessionMode.TREE))
    for text in ("1", "2"):
        turn(session.history, [user(text)], "a")
    checkpoints = [node.checkpoint for node in session.history.nodes]
    for number, checkpoint in enumerate(checkpoints):
        session.keep_mismatch(checkpoint, {"number": number})
    assert [session.known_mismatch(c) for c in checkpoints] == [{"number": 0}, {"number": 1}]


def test_the_options_say_which_history_a_session_has():
    assert not Session("x").history.is_tree
    session = Session("x", SessionOptions(mode=SessionMode.TREE, max_tree_turns=1))
    assert session.history.is_tree
    turn(session.history, [user("1")], "a")
    with pytest.raises(TurnLimitError):
        session.history.plan([user("2")])


def test_only_the_newest_cancelled_turns_are_noted():
    session = Session("x")
    for number in range(1000):
        session.cancelled_turns.append({"timestamp": number})
    assert len(session.cancelled_turns) == 64
    assert session.cancelled_turns[-1] == {"timestamp": 999}
