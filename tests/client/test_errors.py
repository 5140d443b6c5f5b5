"""The client's errors by status."""

from __future__ import annotations

import pytest

from sessions.client.errors import (
    ErrorDetails,
    GoneSessionError,
    SessionsClientError,
    StatusError,
    UnavailableError,
    UnknownSessionError,
    status_error,
)


def details(status: int, code: str = "") -> ErrorDetails:
    return ErrorDetails(
        status=status,
        message="m",
        type="t",
        code=code,
        param=None,
        should_retry=None,
        retry_after_s=None,
    )


@pytest.mark.parametrize(
    ("status", "expected"),
    [
        (404, UnknownSessionError),
        (410, GoneSessionError),
        (503, UnavailableError),
        (500, StatusError),
    ],
)
def test_a_status_with_a_meaning_of_its_own_has_a_class(status: int, expected: type[StatusError]):
    error = status_error(details(status))
    assert type(error) is expected
    assert error.status == status
    assert isinstance(error, SessionsClientError)


def test_the_message_has_the_code_if_there_is_one():
    assert str(status_error(details(500, "internal_error"))) == "500 internal_error: m"
    assert str(status_error(details(500))) == "500: m"
