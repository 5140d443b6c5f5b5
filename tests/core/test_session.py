from array import array

import pytest

from sessions.core.histories.checkpoint import Checkpoint
from sessions.core.records import Record
from sessions.core.session import Session
from sessions.core.shared_ids import SharedIds
from sessions.core.turn_facts import TurnFacts
from sessions.errors import GoneSessionError
from sessions.replay.splice import SplicedText


def checkpoint() -> Checkpoint:
    text = SplicedText(parts=())
    record = Record(facts={}, request=(), response=text, raw_response=text, status=200)
    return Checkpoint(
        ids=SharedIds(array("I")),
        message_end=1,
        record=record,
        facts=TurnFacts(prompt_count=0, log_probs=array("d")),
        tools=None,
        template_kwargs={},
    )


def test_an_ended_session_refuses_to_work_and_says_why():
    session = Session("x")
    session.check_open()
    session.end("was deleted")
    assert session.is_ended
    with pytest.raises(GoneSessionError, match="session x was deleted"):
        session.check_open()


def test_a_comparison_is_kept_for_its_checkpoint_alone():
    session, head, other = Session("x"), checkpoint(), checkpoint()
    assert session.known_mismatch(head) is None
    session.keep_mismatch(head, {"tito_session_mismatch": []})
    assert session.known_mismatch(head) == {"tito_session_mismatch": []}
    assert session.known_mismatch(other) is None


def test_only_the_newest_cancelled_turns_are_noted():
    session = Session("x")
    for number in range(1000):
        session.cancelled_turns.append({"timestamp": number})
    assert len(session.cancelled_turns) == 64
    assert session.cancelled_turns[-1] == {"timestamp": 999}
