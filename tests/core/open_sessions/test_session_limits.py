from collections.abc import Sequence

import pytest

from sessions.core.histories.checkpoint import Checkpoint, Plan
from sessions.core.open_sessions.session_limits import SessionLimits
from sessions.core.open_sessions.session_options import SessionOptions
from sessions.errors.turns import TokenLimitError, TurnLimitError
from tests.support.turn_outcomes import checkpoint


def plan_on(base: Checkpoint | None, head: Checkpoint | None) -> Plan:
    return Plan(head=head, base=base, stored=[], tail=[])


def limits_after(*tokens: int, **options: int) -> tuple[SessionLimits, list[Checkpoint]]:
    limits = SessionLimits(SessionOptions(**options))  # type: ignore[arg-type]
    turns: list[Checkpoint] = []
    for count in tokens:
        last = turns[-1] if turns else None
        turns.append(checkpoint(count))
        limits.count(plan_on(last, last), turns[-1], [])
    return limits, turns


def counts_of(limits: SessionLimits) -> Sequence[int]:
    return limits.turn_count, limits.token_count


def test_tokens_that_turns_share_count_once():
    limits, _ = limits_after(10, 25, 40)
    assert counts_of(limits) == (3, 40)


def test_a_turn_that_replaces_another_one_counts_in_its_place():
    limits, (first, second) = limits_after(10, 25)
    plan = plan_on(first, second)
    limits.count(plan, checkpoint(30), [second])
    assert counts_of(limits) == (2, 30)


def test_a_first_turn_that_is_replaced_leaves_nothing():
    limits, (first,) = limits_after(10)
    limits.count(plan_on(None, first), checkpoint(5), [first])
    assert counts_of(limits) == (1, 5)


def test_no_limit_refuses_nothing():
    limits, (turn,) = limits_after(1000)
    limits.check_turn(plan_on(turn, turn), 1 << 40)


def test_the_last_turn_that_is_allowed_is_taken_and_the_next_is_not():
    limits, (first,) = limits_after(10, max_turns=2)
    limits.check_turn(plan_on(first, first), 20)
    second = checkpoint(25)
    limits.count(plan_on(first, first), second, [])
    with pytest.raises(TurnLimitError, match="2 turns"):
        limits.check_turn(plan_on(second, second), 30)
    assert not limits.has_room(plan_on(second, second), 30)


def test_a_full_session_may_still_replace_its_last_turn():
    limits, (first, second) = limits_after(10, 25, max_turns=2)
    limits.check_turn(plan_on(first, second), 20)


def test_a_prompt_that_reaches_the_tokens_is_refused_and_one_below_is_not():
    limits, (turn,) = limits_after(10, max_session_tokens=20)
    limits.check_turn(plan_on(turn, turn), 19)
    with pytest.raises(TokenLimitError, match="20 tokens"):
        limits.check_turn(plan_on(turn, turn), 20)


def test_a_turn_that_replaces_another_one_is_measured_without_it():
    limits, (first, second) = limits_after(10, 25, max_session_tokens=20)
    limits.check_turn(plan_on(first, second), 19)
    with pytest.raises(TokenLimitError):
        limits.check_turn(plan_on(first, second), 20)
