from tests.support.turn_outcomes import turn_reply


def test_a_reply_is_recorded_when_it_has_a_turn():
    assert turn_reply().is_recorded
    assert not turn_reply(is_recorded=False).is_recorded
