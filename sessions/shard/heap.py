"""The C library's heap: memory of ended sessions is given back to the machine.

A session leaves holes in the heap, not a free end, and glibc gives back only what is free at the
end: after 120 sessions were deleted a process kept 204 MiB that nobody used (measured). `trim`
gives back the holes too. It holds the heap's lock for some milliseconds, so it is called in a
thread, seldom, and only after sessions ended.

Spec: docs/limits.md#memory
"""

from __future__ import annotations

import asyncio
import ctypes
from collections.abc import Callable
from typing import Final

# A guess: a trainer deletes sessions in crowds, and one call serves them all.
_PERIOD_S: Final = 10.0


class Heap:
    """Decides when to trim; see the module docstring."""

    def __init__(self, trim: Callable[[], None], now: Callable[[], float]) -> None:
        """Nothing ended yet.

        Args:
            trim: Gives free memory back; called in a thread.
            now: A clock, seconds.
        """
        self._trim = trim
        self._now = now
        self._ended = 0
        self._trimmed_at = now()
        self._trimming: asyncio.Future[None] | None = None

    def look(self, ended_sessions: int) -> None:
        """Trim if sessions ended since the last time, and that is long enough ago.

        Args:
            ended_sessions: How many ended since the start.
        """
        is_due = self._now() - self._trimmed_at >= _PERIOD_S
        if ended_sessions == self._ended or not is_due:
            return
        if self._trimming is not None and not self._trimming.done():
            return
        self._ended = ended_sessions
        self._trimmed_at = self._now()
        self._trimming = asyncio.ensure_future(asyncio.to_thread(self._trim))

    async def close(self) -> None:
        """Wait for a trim that runs."""
        if self._trimming is not None:
            await self._trimming


def trim_heap() -> None:
    """Give free memory back; does nothing where the C library has no such call."""
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None)
    if trim is not None:
        trim(0)
