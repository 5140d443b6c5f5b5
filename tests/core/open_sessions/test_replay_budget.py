from collections.abc import Callable

import pytest

from sessions.core.open_sessions.replay_budget import ReplayBudget
from sessions.errors.client_visible import ClientVisibleError
from sessions.errors.group import OverloadedError, ReplayBudgetError


class Stored:
    """Of a store only how full it is."""

    stored_bytes = 0


@pytest.mark.parametrize(
    ("stored_bytes", "at_create", "at_turn"),
    [
        (0, None, None),
        (999, None, None),
        (1000, OverloadedError, None),
        (1249, OverloadedError, None),
        (1250, OverloadedError, ReplayBudgetError),
        (9999, OverloadedError, ReplayBudgetError),
    ],
)
def test_sessions_stop_at_the_budget_and_turns_a_quarter_above(
    stored_bytes: int, at_create: type[Exception] | None, at_turn: type[Exception] | None
):
    store = Stored()
    store.stored_bytes = stored_bytes
    budget = ReplayBudget(store, 1000)  # type: ignore[arg-type]
    assert refusal_of(budget.check_create) is at_create
    assert refusal_of(budget.check_turn) is at_turn


def test_only_what_passes_by_itself_may_be_tried_again():
    assert (OverloadedError.status, OverloadedError.should_retry) == (503, True)
    assert (ReplayBudgetError.status, ReplayBudgetError.should_retry) == (503, False)


def refusal_of(check: Callable[[], None]) -> type[Exception] | None:
    try:
        check()
    except ClientVisibleError as error:
        return type(error)
    return None
