import pytest

from sessions.core.replay_budget import ReplayBudget
from sessions.errors import OverloadedError, ReplayBudgetError


class Stored:
    """Of a store only how full it is."""

    stored_bytes = 0


@pytest.mark.parametrize(
    ("stored_bytes", "may_open", "may_go_on"),
    [
        (0, True, True),
        (999, True, True),
        (1000, False, True),
        (1249, False, True),
        (1250, False, False),
        (9999, False, False),
    ],
)
def test_sessions_stop_at_the_budget_and_turns_a_quarter_above(
    stored_bytes: int, may_open: bool, may_go_on: bool
):
    store = Stored()
    store.stored_bytes = stored_bytes
    budget = ReplayBudget(store, 1000)  # type: ignore[arg-type]
    assert refusal_of(budget.check_create) == (None if may_open else OverloadedError)
    assert refusal_of(budget.check_turn) == (None if may_go_on else ReplayBudgetError)


def refusal_of(check):
    try:
        check()
    except (OverloadedError, ReplayBudgetError) as error:
        assert error.status == 503
        assert error.should_retry is isinstance(error, OverloadedError)
        return type(error)
    return None
