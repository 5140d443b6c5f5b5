from __future__ import annotations

import dataclasses
import itertools

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.support.model import (
    BLIND,
    DIED,
    GONE,
    HALF_CLOSED,
    NOBODY,
    Ask,
    Expectation,
    Fate,
    Form,
    Policy,
    Script,
    Seen,
    State,
    Touch,
    Trouble,
    fates_behind,
    fates_in_state,
    faults_of,
    may_reset,
    status_of_death,
)
from tests.support.model_scripts import CELLS, script_of_cell, scripts

REPLY = Seen(fate=Fate.REPLY, status=200)
LAST = Seen(fate=Fate.REPLY, status=200, says_close=True)
REFUSED = Seen(fate=Fate.REFUSED, status=410, says_close=True)
LOST = Seen(fate=Fate.LOST)
CUT = Seen(fate=Fate.CUT)


def expectation(seed: str, *fates: Fate, ends: bool = False) -> Expectation:
    return Expectation(seed=seed, fates=frozenset(fates), ends=ends, status=410)


def script(state: State, touch: Touch, trouble: Trouble, **more: object) -> Script:
    return dataclasses.replace(Script(state=state, touch=touch, trouble=trouble), **more)  # type: ignore[arg-type]


ANSWER = expectation("a", Fate.REPLY)
OPEN = expectation("b", *Fate)


@pytest.mark.parametrize(
    ("expected", "seen", "fault"),
    [
        ([ANSWER], [LOST], "LOST (0), allowed ['REPLY']"),
        ([ANSWER], [CUT], "CUT (0)"),
        ([ANSWER], [REFUSED], "REFUSED (410)"),
        ([ANSWER], [LAST], "says_close is True"),
        ([expectation("a", Fate.REPLY, ends=True)], [REPLY], "says_close is False"),
        ([expectation("a", Fate.REPLY, ends=True), OPEN], [LAST, REPLY], "REPLY behind the end"),
        ([expectation("a", Fate.CUT), OPEN], [CUT, REPLY], "REPLY behind the end by a"),
        ([expectation("a", Fate.LOST), OPEN], [LOST, REFUSED], "REFUSED behind the end by a"),
        (
            [expectation("a", Fate.REFUSED)],
            [Seen(fate=Fate.REFUSED, status=502)],
            "status 502 instead of 410",
        ),
        ([OPEN], [LOST], "ended by nobody"),
        ([OPEN], [CUT], "ended by nobody"),
    ],
)
def test_a_divergence_is_named(expected: list[Expectation], seen: list[Seen], fault: str):
    assert any(fault in found for found in faults_of(expected, seen, must_go_on=True))


@pytest.mark.parametrize(
    ("expected", "seen"),
    [
        ([ANSWER, ANSWER], [REPLY, REPLY]),
        ([expectation("a", Fate.REPLY, ends=True), ANSWER], [LAST, LOST]),
        ([expectation("a", Fate.REFUSED), ANSWER], [REFUSED, LOST]),
        ([expectation("a", Fate.CUT), ANSWER], [CUT, LOST]),
        (
            [expectation("a", Fate.REFUSED), ANSWER],
            [Seen(fate=Fate.REFUSED, status=410), REPLY],
        ),
    ],
)
def test_what_the_rules_allow_is_no_fault(expected: list[Expectation], seen: list[Seen]):
    assert faults_of(expected, seen, must_go_on=False) == []


def test_as_many_requests_as_fates_are_compared():
    with pytest.raises(ValueError, match="shorter"):
        faults_of([ANSWER, ANSWER], [REPLY], must_go_on=True)


def test_both_tables_know_every_state_that_has_a_request():
    assert set(HALF_CLOSED) == set(State) - {State.IDLE}
    assert set(DIED) == set(HALF_CLOSED) - {State.HALF_HEAD}


@pytest.mark.parametrize("policy", Policy)
@settings(derandomize=True, deadline=None)
@given(drawn=scripts())
def test_every_script_has_fates_for_all_its_requests(policy: Policy, drawn: Script):
    if drawn.state is not State.IDLE:
        assert fates_in_state(drawn, policy)
    for ask, is_of_dead in itertools.product(drawn.follow, (True, False)):
        assert fates_behind(drawn, policy, ask, is_of_dead=is_of_dead)


@settings(derandomize=True, deadline=None)
@given(drawn=scripts(), policy=st.sampled_from(Policy))
def test_a_live_group_owes_each_request_its_reply_unless_the_client_ends(
    drawn: Script, policy: Policy
):
    quiet = dataclasses.replace(drawn, trouble=Trouble.STOPPED, touch=Touch.SENDS_EARLY)
    assert not may_reset(quiet)
    if quiet.state is not State.IDLE:
        assert fates_in_state(quiet, policy) == {Fate.REPLY}
    for ask in quiet.follow:
        assert fates_behind(quiet, policy, ask, is_of_dead=False) == {Fate.REPLY}


@pytest.mark.parametrize("state", [State.WAITING, State.UPLOADING, State.EXPECTING])
def test_a_death_refuses_who_has_no_byte_and_a_lone_shard_refuses_nobody(state: State):
    killed = script(state, Touch.NOTHING, Trouble.KILLED)
    assert fates_in_state(killed, Policy.CONTINUE) == {Fate.REFUSED}
    assert fates_in_state(killed, Policy.HALT) == {Fate.REFUSED}
    assert fates_in_state(killed, Policy.LONE) == {Fate.LOST}


@pytest.mark.parametrize("policy", Policy)
@pytest.mark.parametrize("state", [State.STALLED, State.FLOODED])
def test_a_death_cuts_a_reply_in_its_middle(state: State, policy: Policy):
    assert fates_in_state(script(state, Touch.NOTHING, Trouble.KILLED), policy) == {Fate.CUT}


def test_a_half_close_that_was_noticed_drops_the_reply_and_a_hasty_one_may_get_it():
    slow = script(State.WAITING, Touch.HALF_CLOSES, Trouble.NONE)
    assert fates_in_state(slow, Policy.CONTINUE) == {Fate.LOST}
    hasty = dataclasses.replace(slow, is_hasty=True)
    assert fates_in_state(hasty, Policy.CONTINUE) == {Fate.LOST, Fate.REPLY}


def test_a_request_without_a_session_may_be_served_elsewhere_when_the_death_came_first():
    ahead = script(State.WAITING, Touch.NOTHING, Trouble.KILLED, is_ahead=True)
    assert fates_in_state(ahead, Policy.CONTINUE) == {Fate.REFUSED}
    plain = dataclasses.replace(ahead, owner=NOBODY)
    assert fates_in_state(plain, Policy.CONTINUE) == {Fate.REFUSED, Fate.REPLY}


def test_only_sessions_of_the_dead_are_refused_afterwards():
    killed = script(State.DONE, Touch.NOTHING, Trouble.KILLED)
    ask = Ask(form=Form.GET)
    assert fates_behind(killed, Policy.CONTINUE, ask, is_of_dead=True) == {Fate.REFUSED}
    assert fates_behind(killed, Policy.CONTINUE, ask, is_of_dead=False) == {Fate.REPLY}


def test_a_death_right_behind_a_reply_may_end_the_connection_and_a_later_one_may_not():
    idle = script(State.IDLE, Touch.NOTHING, Trouble.KILLED)
    ask = Ask(form=Form.GET)
    assert fates_behind(idle, Policy.CONTINUE, ask, is_of_dead=False) == {Fate.REPLY}
    hasty = dataclasses.replace(idle, is_hasty=True)
    assert fates_behind(hasty, Policy.CONTINUE, ask, is_of_dead=False) == {Fate.REPLY, Fate.LOST}


def test_the_status_of_a_death_depends_on_policy_and_session():
    assert status_of_death(Policy.CONTINUE, 0) == 410
    assert status_of_death(Policy.CONTINUE, NOBODY) == 502
    assert status_of_death(Policy.HALT, NOBODY) == 503


def test_the_cells_are_all_triples_and_each_has_its_script():
    assert len(CELLS) == len(State) * len(Touch) * len(Trouble)
    for cell in CELLS:
        made = script_of_cell(cell)
        assert (made.state, made.touch, made.trouble) == cell
        assert not made.starts_in_trouble
        assert script_of_cell(cell) == made


def test_a_trouble_begins_first_only_where_no_reply_is_read_on_the_way():
    for cell in CELLS:
        ahead = dataclasses.replace(script_of_cell(cell), is_ahead=True)
        expected = cell[0] in BLIND and cell[2] is not Trouble.NONE
        assert ahead.starts_in_trouble == expected
    assert frozenset({Touch.CLOSES, Touch.RESETS}) == GONE
