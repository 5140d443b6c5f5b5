"""Looks after exchanges that last: clients that go away, bodies that stand still.

One timer per shard instead of one per exchange: most exchanges are over before it ticks. An
exchange that it meets for the first time is read from on, so that a client that goes away is
noticed; one whose body did not move within the time-out is failed. The time in which the
application, not the client, holds a body up does not count.

Spec: docs/lending.md#sweep
"""

from __future__ import annotations

import asyncio
from typing import Final

from sessions.shard.exchange import Exchange, LoanState

_PERIOD_S: Final = 0.05


class Sweep:
    """Holds the exchanges in progress; see the module docstring."""

    def __init__(self, body_timeout_s: float) -> None:
        """Start ticking.

        Args:
            body_timeout_s: How long a missing body may stand still.
        """
        self._body_timeout_s = body_timeout_s
        self._exchanges: set[Exchange] = set()
        self._loop = asyncio.get_running_loop()
        self._timer = self._loop.call_later(_PERIOD_S, self._tick)

    def add(self, exchange: Exchange) -> None:
        """Look after an exchange from now on."""
        self._exchanges.add(exchange)

    def discard(self, exchange: Exchange) -> None:
        """The exchange is over."""
        self._exchanges.discard(exchange)

    def stop(self) -> None:
        """Tick no more."""
        self._timer.cancel()

    def _tick(self) -> None:
        now = self._loop.time()
        oldest = now - self._body_timeout_s
        for exchange in list(self._exchanges):
            if exchange.loan is not LoanState.LENT:
                self._exchanges.discard(exchange)
                continue
            if not exchange.is_body_wanted:
                exchange.progress_at = now
            elif exchange.progress_at < oldest:
                exchange.fail_slow_body(self._body_timeout_s)
                continue
            if not exchange.is_watched:
                exchange.watch_client()
        self._timer = self._loop.call_later(_PERIOD_S, self._tick)
