"""What every error of seeded sessions says."""

import pytest

from sessions import session_errors
from sessions.errors import ClientVisibleError
from sessions.session_errors import ReleaseFailedError

KINDS = [
    kind
    for kind in vars(session_errors).values()
    if isinstance(kind, type) and kind.__module__ == session_errors.__name__
]


@pytest.mark.parametrize("kind", KINDS)
def test_only_a_failed_release_is_tried_again(kind: type[ClientVisibleError]):
    error = kind("why")
    told = "true" if kind is ReleaseFailedError else "false"
    assert ("x-should-retry", told) in error.headers
    assert "www-authenticate" not in [name for name, _ in error.headers]
    assert (error.status == 500) == (kind is ReleaseFailedError)


def test_there_are_errors_to_look_at():
    assert len(KINDS) == 7
