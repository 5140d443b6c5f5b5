"""How late the loop is: a timer that should fire ten times a second, and by how much it missed.

What blocks the loop for 80 ms delays every session of the shard by 80 ms, and no other number
shows it. A tick costs some microseconds.

Spec: docs/operations.md#metrics
"""

from __future__ import annotations

import asyncio
from typing import Final

_TICK_S: Final = 0.1


class LoopLag:
    """Measures from `start` to `stop`, on the running loop."""

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._worst_s = 0.0
        self._due = 0.0
        self._timer: asyncio.TimerHandle | None = None

    def start(self) -> None:
        """Begin."""
        self._due = self._loop.time() + _TICK_S
        self._timer = self._loop.call_at(self._due, self._on_tick)

    def stop(self) -> None:
        """End."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def take_worst_s(self) -> float:
        """The largest lag since the last call, seconds; a lag that still lasts is not seen yet."""
        worst, self._worst_s = self._worst_s, 0.0
        return worst

    def _on_tick(self) -> None:
        self._worst_s = max(self._worst_s, self._loop.time() - self._due)
        self.start()
