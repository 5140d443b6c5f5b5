"""What every error of turns says."""

import pytest

from sessions import turn_errors
from sessions.errors import ClientVisibleError

KINDS = [
    kind
    for kind in vars(turn_errors).values()
    if isinstance(kind, type) and kind.__module__ == turn_errors.__name__
]


@pytest.mark.parametrize("kind", KINDS)
def test_no_error_of_a_turn_is_tried_again(kind: type[ClientVisibleError]):
    error = kind("why")
    assert error.status == (500 if kind is turn_errors.MatcherFailedError else 422)
    assert ("x-should-retry", "false") in error.headers
    assert "retry-after" not in [name for name, _ in error.headers]


def test_there_are_errors_to_look_at():
    assert len(KINDS) == 5
