"""Contained code: what would end more than its own request becomes an error."""

from __future__ import annotations

import asyncio

import pytest

from sessions.errors.unseen import BrokenOutError
from sessions.tools.contained import run_contained, wait_contained


class Outcome(BaseException):
    """What frameworks of tests raise where an assertion fails."""


BROKEN_OUT = [
    Outcome(),
    SystemExit(3),
    asyncio.CancelledError(),
    BaseExceptionGroup("several", [asyncio.CancelledError()]),
]


def named(error: BaseException) -> str:
    return type(error).__name__


@pytest.mark.parametrize("error", BROKEN_OUT, ids=named)
async def test_code_that_raises_no_exception_fails_by_one(error: BaseException):
    def plain() -> None:
        raise error

    async def later() -> None:
        await asyncio.sleep(0)
        raise error

    with pytest.raises(BrokenOutError, match=type(error).__name__) as caught:
        run_contained(plain)
    assert caught.value.__cause__ is error
    with pytest.raises(BrokenOutError, match=type(error).__name__):
        await asyncio.create_task(wait_contained(later()))


@pytest.mark.parametrize("error", [ValueError("x"), ExceptionGroup("several", [ValueError()])])
async def test_exceptions_pass_as_they_are(error: Exception):
    def plain() -> None:
        raise error

    async def later() -> None:
        raise error

    with pytest.raises(type(error)) as caught:
        run_contained(plain)
    assert caught.value is error
    with pytest.raises(type(error)) as caught:
        await wait_contained(later())
    assert caught.value is error


async def test_results_pass_and_so_does_a_cancellation_that_somebody_asked_for():
    async def later(n: int) -> int:
        await asyncio.sleep(0)
        return n

    assert run_contained(lambda n: n, n=3) == 3
    assert await wait_contained(later(3)) == 3
    task = asyncio.create_task(wait_contained(asyncio.Event().wait()))
    await asyncio.sleep(0)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
