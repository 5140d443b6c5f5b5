"""What every error of turns says."""

import pytest

from sessions.errors.client_visible import ClientVisibleError
from sessions.errors.turns import MatcherFailedError
from tests.support.error_classes import error_classes

KINDS = error_classes(ClientVisibleError, "turns")


@pytest.mark.parametrize("kind", KINDS)
def test_no_error_of_a_turn_is_tried_again(kind: type[ClientVisibleError]):
    error = kind("why")
    assert error.status in ({500} if kind is MatcherFailedError else {400, 422})
    assert ("x-should-retry", "false") in error.headers
    assert "retry-after" not in [name for name, _ in error.headers]


def test_there_are_errors_to_look_at():
    assert len(KINDS) == 11
