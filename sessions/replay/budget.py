"""The budget of turns in flight: how much text of unfinished replies one shard holds.

Each reply opens a `Holder`, charges what it takes, and releases it when its turn is over. Over
the limit `charge` says no, and the reply waits unread, so TCP holds the engine back. Three rules
keep that from harm. Small replies never wait. The oldest holder that makes progress is always let
on, so no two large replies wait for each other, and one that is larger than the whole budget is
admitted alone. One that stands still loses this privilege to the next until it moves again.

Who may go on is decided without waiting (`may_go_on`); `wait_room` only waits for it. The limit
may be passed by one piece per holder.

Must not know what is held, or where.

Spec: docs/replay.md#turns-in-flight
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Callable
from typing import Final

# A reply that holds less never waits: chats without replay (a guess, 500 such turns are 32 MiB).
SMALL_BYTES: Final = 64 * 1024
# Without progress for so long the oldest holder lets the next one pass (a guess).
STALL_S: Final = 5.0


class IngestBudget:
    """Bytes held by replies that are not finished, of one shard; see the module docstring."""

    def __init__(self, limit_bytes: int, *, clock: Callable[[], float] = time.monotonic) -> None:
        """Make an empty one.

        Args:
            limit_bytes: Over it holders wait.
            clock: Seconds, never going back.
        """
        self._limit_bytes = limit_bytes
        self._clock = clock
        self._holders: dict[Holder, None] = {}  # in the order in which they were opened
        self._held_bytes = 0

    @property
    def limit_bytes(self) -> int:
        """The limit."""
        return self._limit_bytes

    @property
    def held_bytes(self) -> int:
        """Bytes held now by all holders."""
        return self._held_bytes

    @property
    def waiting_count(self) -> int:
        """Holders that wait for room now."""
        return sum(holder.is_waiting for holder in self._holders)

    def now(self) -> float:
        """The time, in seconds of the budget's clock."""
        return self._clock()

    def open(self) -> Holder:
        """Open a holder for one reply; it must be released."""
        holder = Holder(self, self._clock())
        self._holders[holder] = None
        return holder

    def may_go_on(self, holder: Holder) -> bool:
        """Whether a holder may take more bytes now."""
        is_free = holder.held_bytes < SMALL_BYTES or self._held_bytes <= self._limit_bytes
        return is_free or holder is self._privileged()

    def on_charge(self, holder: Holder, size_bytes: int) -> None:
        """A holder took bytes; only holders call this. One that was released holds nothing."""
        if holder not in self._holders:
            return
        holder.held_bytes += size_bytes
        holder.progress_at = self._clock()
        self._held_bytes += size_bytes

    def on_release(self, holder: Holder) -> None:
        """A holder gave all back; only holders call this."""
        if holder not in self._holders:
            return
        del self._holders[holder]
        self._held_bytes -= holder.held_bytes
        holder.held_bytes = 0
        self.wake()

    def wake(self) -> None:
        """Wake the holders that wait and may go on."""
        for holder in self._holders:
            if holder.is_waiting and self.may_go_on(holder):
                holder.wake()

    def stall_in_s(self) -> float:
        """Seconds after which the privilege may have passed on."""
        holder = self._privileged()
        if holder is None or holder.is_waiting:  # about to go on; it may stand still after that
            return STALL_S
        return max(0.0, holder.progress_at + STALL_S - self._clock())

    def _privileged(self) -> Holder | None:
        """The oldest holder that is not small and not stalled."""
        now = self._clock()
        for holder in self._holders:
            is_moving = holder.is_waiting or now - holder.progress_at < STALL_S
            if holder.held_bytes >= SMALL_BYTES and is_moving:
                return holder
        return None


class Holder:
    """What one reply holds; made by `IngestBudget.open`.

    Attributes:
        held_bytes: Bytes charged and not released.
        progress_at: When bytes were last taken, by the budget's clock.
    """

    __slots__ = ("_budget", "_wakes", "held_bytes", "progress_at")

    def __init__(self, budget: IngestBudget, now: float) -> None:
        self._budget = budget
        self._wakes: asyncio.Event | None = None
        self.held_bytes = 0
        self.progress_at = now

    @property
    def is_waiting(self) -> bool:
        """Whether the reply waits in `wait_room`."""
        return self._wakes is not None

    def charge(self, size_bytes: int) -> bool:
        """Bytes were taken; never refused, since they are there already.

        Args:
            size_bytes: More bytes held than before; 0 if the piece added none: it is progress.

        Returns:
            Whether to go on; if not, wait for `wait_room` before the next piece.
        """
        self._budget.on_charge(self, size_bytes)
        return self._budget.may_go_on(self)

    async def wait_room(self) -> None:
        """Wait until this reply may take more bytes. One task at a time."""
        while not self._budget.may_go_on(self):
            self._wakes = asyncio.Event()
            try:
                if self._budget.may_go_on(self):  # as one that waits it is no longer stalled
                    return
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(self._budget.stall_in_s()):
                        await self._wakes.wait()
            finally:
                self._wakes = None
                self.progress_at = self._budget.now()

    def wake(self) -> None:
        """End a wait, to look again."""
        if self._wakes is not None:
            self._wakes.set()

    def release(self) -> None:
        """Give all back: the turn is over. Idempotent."""
        self._budget.on_release(self)
