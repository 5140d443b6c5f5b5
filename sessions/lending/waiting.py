"""Waiting for a condition that no callback announces, such as an empty write buffer elsewhere.

Spec: docs/architecture.md#waiting
"""

from __future__ import annotations

import asyncio
import math
import time
from collections.abc import Callable


async def wait_set(event: asyncio.Event, limit_s: float) -> bool:
    """Wait for an event, but not longer than a limit.

    Args:
        event: What is waited for.
        limit_s: How long at most; 0 only looks.

    Returns:
        Whether the event was set within the limit.
    """
    try:
        async with asyncio.timeout(limit_s):
            await event.wait()
    except TimeoutError:
        return event.is_set()
    return True


async def wait_until(
    condition: Callable[[], object], *, limit_s: float = math.inf, poll_s: float = 0.02
) -> bool:
    """Ask again and again until the condition holds.

    Args:
        condition: Cheap and without side effects.
        limit_s: How long to wait at most.
        poll_s: Pause between two questions.

    Returns:
        Whether it held within the limit.
    """
    end = time.monotonic() + limit_s
    while not condition():
        if time.monotonic() >= end:
            return False
        await asyncio.sleep(poll_s)
    return True
