import asyncio
import logging

import pytest

from sessions.core.samples.hook_call import call_hook, chosen_of
from sessions.errors.samples import SampleHookError


def test_a_hook_is_given_its_arguments():
    assert call_hook("picker", lambda a, b: [a, b], 1, 2) == [1, 2]


def test_a_hook_that_raises_is_an_error_that_says_so(caplog: pytest.LogCaptureFixture):
    def broken() -> None:
        raise KeyError("no\nsuch key")

    with (
        caplog.at_level(logging.ERROR),
        pytest.raises(SampleHookError, match="the picker raised KeyError: 'no"),
    ):
        call_hook("picker", broken)
    assert "hook failed hook=picker" in caplog.text
    assert "in broken" in caplog.text


@pytest.mark.parametrize("error", [SystemExit(3), asyncio.CancelledError()])
def test_a_hook_cannot_end_the_process_or_its_request(error: BaseException):
    def leaving() -> None:
        raise error

    with pytest.raises(SampleHookError, match=f"the picker raised {type(error).__name__}"):
        call_hook("picker", leaving)


def test_a_hook_that_exhausts_the_stack_is_an_error():
    def endless() -> None:
        endless()

    with pytest.raises(SampleHookError, match="raised RecursionError"):
        call_hook("picker", endless)


GIVEN = [object(), object(), object()]


def test_what_is_chosen_keeps_its_order():
    assert chosen_of("picker", [GIVEN[2], GIVEN[0]], GIVEN) == [GIVEN[2], GIVEN[0]]
    assert chosen_of("picker", (), GIVEN) == []


@pytest.mark.parametrize(
    ("chosen", "told"),
    [
        (None, "gives NoneType instead of a list"),
        (set(), "gives set instead of a list"),
        ((each for each in GIVEN), "gives generator instead of a list"),
        ([GIVEN[0], object()], "gives at place 1 what it was not given"),
        ([GIVEN[0], GIVEN[0]], "gives at place 1 what it was not given, or gave already"),
        ([None], "gives at place 0"),
    ],
)
def test_what_was_not_given_cannot_be_chosen(chosen: object, told: str):
    with pytest.raises(SampleHookError, match=f"the picker {told}"):
        chosen_of("picker", chosen, GIVEN)
