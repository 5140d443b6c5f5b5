"""What every error of seeded sessions says."""

import pytest

from sessions.errors.client_visible import ClientVisibleError
from sessions.errors.seeded_sessions import ReleaseFailedError
from tests.support.error_classes import error_classes

KINDS = error_classes(ClientVisibleError, "seeded_sessions")


@pytest.mark.parametrize("kind", KINDS)
def test_only_a_failed_release_is_tried_again(kind: type[ClientVisibleError]):
    error = kind("why")
    told = "true" if kind is ReleaseFailedError else "false"
    assert ("x-should-retry", told) in error.headers
    assert "www-authenticate" not in [name for name, _ in error.headers]
    assert (error.status == 500) == (kind is ReleaseFailedError)


def test_there_are_errors_to_look_at():
    assert len(KINDS) == 7
