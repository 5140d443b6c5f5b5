"""Waiting in tests: for a condition with a deadline, never for a time.

Spec: docs/architecture.md#tests
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable

POLL_S = 0.01  # how often a condition that nothing announces is looked at


class DeadlineError(AssertionError):
    """The condition did not become true in time; the message says which."""


def wait_until(condition: Callable[[], bool], what: str, deadline_s: float = 10.0) -> None:
    """Block until the condition holds.

    Args:
        condition: Looked at every 10 ms.
        what: The condition in words, for the failure.
        deadline_s: How long to wait at most.

    Raises:
        DeadlineError: It did not hold in time.
    """
    end = time.monotonic() + deadline_s
    while not condition():
        if time.monotonic() >= end:
            raise DeadlineError(f"not within {deadline_s:g} s: {what}")
        time.sleep(POLL_S)


async def wait_until_async(
    condition: Callable[[], bool], what: str, deadline_s: float = 10.0
) -> None:
    """`wait_until` for a test whose own loop must go on turning meanwhile.

    Raises:
        DeadlineError: It did not hold in time.
    """
    end = time.monotonic() + deadline_s
    while not condition():
        if time.monotonic() >= end:
            raise DeadlineError(f"not within {deadline_s:g} s: {what}")
        await asyncio.sleep(POLL_S)
