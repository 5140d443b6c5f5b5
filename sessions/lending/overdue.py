"""The moment from which a stop waits for nothing that is in flight.

Each member counts for itself: the shards answer what they have, and the router answers for shards
that do not.

Spec: docs/architecture.md#life-and-death
"""

from __future__ import annotations

from sessions.errors.group import GroupStoppedError, stopped_error
from sessions.lending.group import Life
from sessions.lending.waiting import wait_set
from sessions.settings import Settings


async def wait_overdue(settings: Settings, life: Life) -> GroupStoppedError:
    """Wait for a stop, and then until its graceful time is over or the process must hurry.

    Args:
        settings: For the drain delay and the graceful limit.
        life: Tells of the stop.

    Returns:
        The answer for what is still in flight.
    """
    await life.stop_requested.wait()
    if await wait_set(life.hurry_requested, settings.drain_delay_s + settings.graceful_s):
        return stopped_error(None)
    return stopped_error(settings.graceful_s)
