from array import array
from dataclasses import replace

import pytest

from sessions.core.records import Record
from sessions.core.shared_ids import SharedIds
from sessions.core.trajectory import Checkpoint, Plan, Trajectory
from sessions.core.turn_facts import TurnFacts
from sessions.errors import HistoryMismatchError
from sessions.replay.splice import SplicedText

Messages = list[dict[str, object]]


def user(text: str) -> dict[str, object]:
    return {"role": "user", "content": text}


def reply(text: str) -> dict[str, object]:
    return {"role": "assistant", "content": text}


def record_of(name: str) -> Record:
    text = SplicedText(parts=(name.encode(),))
    return Record(facts={}, request=(), response=text, raw_response=text, status=200)


def apply(trajectory: Trajectory, plan: Plan, text: str) -> list[Checkpoint]:
    return trajectory.commit(
        plan,
        reply(text),
        Checkpoint(
            ids=SharedIds(array("I", [len(text)])),
            message_end=len(plan.stored) + len(plan.tail) + 1,
            record=record_of(text),
            facts=TurnFacts(prompt_count=0, log_probs=array("d")),
            tools=None,
            template_kwargs={},
        ),
    )


def turn(trajectory: Trajectory, sent: Messages, text: str) -> list[str]:
    """Take a turn; the names of the records that were rolled back."""
    dropped = apply(trajectory, trajectory.plan(sent), text)
    return [names_of([checkpoint.record])[0] for checkpoint in dropped]


def names_of(records: list[Record]) -> list[str]:
    return [record.response.parts[0].decode() for record in records]  # type: ignore[union-attr]


@pytest.fixture
def two_turns() -> Trajectory:
    trajectory = Trajectory()
    turn(trajectory, [user("1")], "a")
    turn(trajectory, [user("1"), reply("a"), user("2")], "b")
    return trajectory


HISTORY: Messages = [user("1"), reply("a"), user("2"), reply("b")]


def test_an_empty_session_renders_everything():
    plan = Trajectory().plan([user("1")])
    assert (plan.head, plan.base, plan.tail) == (None, None, [user("1")])


def test_a_request_that_begins_with_the_history_extends_it(two_turns: Trajectory):
    plan = two_turns.plan([*HISTORY, user("3")])
    assert plan.base is two_turns.head
    assert plan.tail == [user("3")]
    assert turn(two_turns, [*HISTORY, user("3")], "c") == []
    assert names_of(two_turns.records) == ["a", "b", "c"]


def test_the_exact_history_again_is_an_extension_by_nothing(two_turns: Trajectory):
    plan = two_turns.plan(HISTORY)
    assert plan.base is two_turns.head
    assert plan.tail == []


def test_the_same_turn_again_replaces_it(two_turns: Trajectory):
    assert turn(two_turns, HISTORY[:3], "b2") == ["b"]
    assert names_of(two_turns.records) == ["a", "b2"]
    assert two_turns.messages == [*HISTORY[:3], reply("b2")]


def test_another_question_in_the_last_turn_replaces_it(two_turns: Trajectory):
    assert turn(two_turns, [*HISTORY[:2], user("other")], "b2") == ["b"]
    assert two_turns.messages == [*HISTORY[:2], user("other"), reply("b2")]


def test_dropping_the_last_turn_builds_on_the_one_before(two_turns: Trajectory):
    plan = two_turns.plan(HISTORY[:2])
    assert plan.base is not None
    assert names_of([plan.base.record]) == ["a"]
    assert plan.tail == []


def test_a_first_turn_may_be_replaced_by_any_other():
    trajectory = Trajectory()
    turn(trajectory, [user("1")], "a")
    assert turn(trajectory, [user("quite different")], "b") == ["a"]
    assert trajectory.messages == [user("quite different"), reply("b")]


def test_going_back_by_two_turns_is_refused_and_changes_nothing(two_turns: Trajectory):
    with pytest.raises(HistoryMismatchError) as caught:
        two_turns.plan([user("other"), *HISTORY[1:]])
    assert caught.value.param == "messages[0].content"
    assert "messages[0].content is 'other', the session has '1'" in caught.value.message
    assert two_turns.messages == HISTORY
    assert turn(two_turns, [*HISTORY, user("3")], "c") == []


def test_a_request_that_is_too_short_names_the_message_that_is_missing(two_turns: Trajectory):
    with pytest.raises(HistoryMismatchError) as caught:
        two_turns.plan([user("1")])
    assert caught.value.param == "messages[1]"
    assert "the request ends before messages[1]" in caught.value.message


def test_planning_changes_nothing(two_turns: Trajectory):
    two_turns.plan(HISTORY[:3])
    assert two_turns.messages == HISTORY
    assert names_of(two_turns.records) == ["a", "b"]


def test_of_two_turns_from_one_state_only_the_first_can_commit(two_turns: Trajectory):
    plans = [two_turns.plan([*HISTORY, user("3")]) for _ in range(2)]
    apply(two_turns, plans[0], "c")
    assert not two_turns.can_commit(plans[1])


def test_of_two_first_turns_only_the_first_can_commit():
    trajectory = Trajectory()
    plans = [trajectory.plan([user("1")]) for _ in range(2)]
    assert trajectory.can_commit(plans[1])
    apply(trajectory, plans[0], "a")
    assert not trajectory.can_commit(plans[1])


def test_a_turn_cannot_commit_after_roll_back_and_commit_brought_the_same_count(
    two_turns: Trajectory,
):
    extension = two_turns.plan([*HISTORY, user("3")])
    turn(two_turns, HISTORY[:3], "b")
    assert len(two_turns.records) == 2
    assert not two_turns.can_commit(extension)


def test_a_turn_can_still_commit_when_a_competitor_only_planned(two_turns: Trajectory):
    extension = two_turns.plan([*HISTORY, user("3")])
    two_turns.plan(HISTORY[:3])
    assert two_turns.can_commit(extension)


def test_the_session_keeps_its_own_spelling_of_what_matched(two_turns: Trajectory):
    spelled = [{**message, "name": "x"} for message in HISTORY]
    turn(two_turns, [*spelled, user("3")], "c")
    assert two_turns.messages[:4] == HISTORY


def test_assistant_messages_of_the_client_are_no_checkpoints():
    trajectory = Trajectory()
    shots = [user("q"), reply("shot"), user("1")]
    turn(trajectory, shots, "a")
    assert names_of(trajectory.records) == ["a"]
    # Cutting into the examples discards the one sampled turn, which is allowed.
    assert trajectory.plan([user("q")]).base is None
    extended = [*shots, reply("a"), user("2"), reply("injected"), user("3")]
    assert turn(trajectory, extended, "b") == []
    assert trajectory.messages == [*extended, reply("b")]


def test_checkpoints_are_compared_by_identity(two_turns: Trajectory):
    head = two_turns.head
    assert head is not None
    assert replace(head) != head
