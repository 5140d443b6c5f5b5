"""What every error of episodes says, whoever sends it."""

import pytest

from sessions.errors.client_visible import ClientVisibleError, RequestError
from tests.support.error_classes import error_classes

KINDS = error_classes(ClientVisibleError, "episodes")


@pytest.mark.parametrize("kind", KINDS)
def test_no_error_of_episodes_is_tried_again_or_starts_an_oauth_dance(kind: type[RequestError]):
    error = kind("why")
    names = [name for name, _ in error.headers]
    assert 400 <= error.status < 500
    assert ("x-should-retry", "false") in error.headers
    assert "www-authenticate" not in names
    assert "retry-after" not in names


def test_there_are_errors_to_look_at():
    assert len(KINDS) == 10
