"""What errors of a group say: which pass, and when to come back."""

from __future__ import annotations

import pytest

from sessions.errors.client_visible import ClientVisibleError
from sessions.errors.group import (
    GroupDyingError,
    NotReadyError,
    OverloadedError,
    draining_error,
    starting_error,
    stopped_error,
)


def test_a_permanent_error_forbids_a_retry_and_names_no_time():
    assert GroupDyingError("x").headers == [
        ("content-type", "application/json"),
        ("x-should-retry", "false"),
    ]


@pytest.mark.parametrize("kind", [NotReadyError, OverloadedError])
def test_an_error_that_passes_asks_for_a_retry_after_a_second(kind: type[ClientVisibleError]):
    assert kind("x").headers == [
        ("content-type", "application/json"),
        ("x-should-retry", "true"),
        ("retry-after", "1"),
    ]


def test_a_group_that_starts_or_drains_says_which():
    assert "starting" in starting_error().message
    assert "draining" in draining_error().message


def test_a_group_that_was_stopped_says_whether_it_had_time():
    assert "30 s" in stopped_error(30.0).message
    assert "at once" in stopped_error(None).message
