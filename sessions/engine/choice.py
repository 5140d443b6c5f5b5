"""Which of several engines a request goes to.

A session's requests stay with one engine, where the cache of its tokens is: the one that had the
fewest exchanges in flight when the session came. An engine to which no connection can be made
counts as dead for a short time; its sessions choose again, and then stay with the new one. When
that time is over one request tries the dead engine, the others wait for its result.

Pure: no sockets; the clock is the caller's. Must not know what a session is.

Spec: docs/architecture.md#engine
"""

from __future__ import annotations

import time
from collections import OrderedDict
from collections.abc import Callable, Collection, Sequence
from typing import Final

DEAD_S: Final = 5.0
AFFINITIES: Final = 65536


class EngineChoice:
    """See the module docstring; engines are numbers from 0."""

    def __init__(
        self,
        count: int,
        *,
        dead_s: float = DEAD_S,
        affinities: int = AFFINITIES,
        now: Callable[[], float] = time.monotonic,
    ) -> None:
        """Begin with all engines alive.

        Args:
            count: How many engines there are; at least one.
            dead_s: How long a dead engine is left alone.
            affinities: How many sessions' engines are remembered; the one not used for the longest
                time is forgotten first.
            now: A clock, seconds.
        """
        self._dead_s = dead_s
        self._limit = affinities
        self._now = now
        # Until when it is left alone; None for an engine that lives.
        self._dead_until: list[float | None] = [None] * count
        self._engines: OrderedDict[str, int] = OrderedDict()
        self._turn = 0

    def __len__(self) -> int:
        """How many sessions' engines are remembered."""
        return len(self._engines)

    def choose(self, affinity: str, loads: Sequence[int], tried: Collection[int]) -> int | None:
        """Choose an engine for one request.

        Args:
            affinity: A session id, or "" for a request of none.
            loads: Exchanges in flight, by engine.
            tried: Engines that failed this request already.

        Returns:
            The engine, or None if there is no use in trying on. A request that has tried none
            always gets one.
        """
        alive = [i for i in range(len(self._dead_until)) if i not in tried and self._may_try(i)]
        chosen = self._engines.get(affinity) if affinity else None
        if chosen is None or chosen not in alive:
            if alive:
                chosen = self._least_loaded(alive, loads)
            elif tried:
                return None
            else:
                chosen = self._longest_dead()
        if affinity:
            self._keep(affinity, chosen)
        if self._dead_until[chosen] is not None:
            self.mark_dead(chosen)  # the others wait for how this one fares
        return chosen

    def mark_dead(self, engine: int) -> None:
        """No connection can be made to it."""
        self._dead_until[engine] = self._now() + self._dead_s

    def mark_alive(self, engine: int) -> None:
        """There is a connection to it."""
        self._dead_until[engine] = None

    def forget(self, affinity: str) -> None:
        """A session ended; unknown ids are ignored."""
        self._engines.pop(affinity, None)

    def _may_try(self, engine: int) -> bool:
        until = self._dead_until[engine]
        return until is None or self._now() >= until

    def _least_loaded(self, engines: Sequence[int], loads: Sequence[int]) -> int:
        """Among equals, by turns: else a quiet group would send every session to the first."""
        self._turn += 1
        count = len(self._dead_until)
        return min(engines, key=lambda engine: (loads[engine], (engine - self._turn) % count))

    def _longest_dead(self) -> int:
        return min(range(len(self._dead_until)), key=lambda i: self._dead_until[i] or 0.0)

    def _keep(self, affinity: str, engine: int) -> None:
        self._engines[affinity] = engine
        self._engines.move_to_end(affinity)
        if len(self._engines) > self._limit:
            self._engines.popitem(last=False)
