"""Waiting for a turn on behalf of one client.

The turn belongs to the core and goes on without its client: what was sampled is recorded. Only
where the settings say so does a client that hangs up take its turn along.

Must not know what a turn does.

Spec: docs/sessions.md#client-gone
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from types import TracebackType
from typing import Any

from sessions.core.attempts.shared_turn import SharedTurn
from sessions.core.attempts.turn_reply import TurnReply
from sessions.errors.group import NotReadyError


class TurnWait:
    """One client's wait. The client is watched within its context, which may be entered again."""

    def __init__(self, turn: SharedTurn, wait_gone: Callable[[], Awaitable[None]] | None) -> None:
        """Join the turn.

        Args:
            turn: The turn; others may wait for it, too.
            wait_gone: Returns when the client is gone; its turn is then cancelled if nobody else
                waits for it. None to let turns outlive their clients.
        """
        turn.join()
        self._shared = turn
        self._turn = turn.task
        self._wait_gone = wait_gone
        self._watchers: set[asyncio.Future[None]] = set()

    async def __aenter__(self) -> TurnWait:
        if self._wait_gone is not None:
            self._watchers = {asyncio.ensure_future(self._wait_gone())}
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        for watcher in self._watchers:
            watcher.cancel()
        await asyncio.gather(*self._watchers, return_exceptions=True)

    @property
    def is_done(self) -> bool:
        """Whether the turn ended."""
        return self._turn.done()

    async def wait(self, timeout_s: float | None = None) -> bool:
        """Wait for the turn's end, or for so long.

        Returns:
            Whether the client still waits: False when it is gone. Its turn has then ended, unless
            others wait for it.
        """
        watched: set[asyncio.Future[Any]] = {self._turn, *self._watchers}
        await asyncio.wait(watched, timeout=timeout_s, return_when=asyncio.FIRST_COMPLETED)
        if self._turn.done() or not any(watcher.done() for watcher in self._watchers):
            return True
        if self._shared.leave():
            await asyncio.wait({self._turn})
        return False

    def result(self) -> TurnReply:
        """What the turn gave.

        Raises:
            ClientVisibleError: The turn failed.
            NotReadyError: It was cancelled because the process stops.
        """
        if self._turn.cancelled():
            raise NotReadyError("the server stopped before the engine answered")
        return self._turn.result()
