"""What errors about a session's name and life say."""

from __future__ import annotations

import pytest

from sessions.errors.client_visible import RequestError
from sessions.errors.sessions import (
    BadSessionIdError,
    BadSessionKeyError,
    GoneSessionError,
    UnknownSessionError,
)


@pytest.mark.parametrize(
    ("kind", "status"),
    [
        (BadSessionIdError, 400),
        (BadSessionKeyError, 401),
        (UnknownSessionError, 404),
        (GoneSessionError, 410),
    ],
)
def test_a_session_that_cannot_be_found_is_final_and_says_why(
    kind: type[RequestError], status: int
):
    error = kind("why")
    assert error.status == status
    assert ("x-should-retry", "false") in error.headers
