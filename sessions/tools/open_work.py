"""Work that ends when what it belongs to is closed.

`run` waits for one piece in a task of its own, so that `close` can cancel it; who waited is then
answered as gone. Nothing is begun any more after that, and `wait_ended` says when all is over.

Spec: docs/tools.md#calls
"""

from __future__ import annotations

import asyncio
import inspect
import logging
from collections.abc import Awaitable, Callable
from typing import Any, Final, TypeVar

from sessions.errors.episodes import EpisodeNotRunningError
from sessions.tools.cleanup import wait_through
from sessions.tools.contained import wait_contained

_log: Final = logging.getLogger(__name__)
_T = TypeVar("_T")


def not_running_error() -> EpisodeNotRunningError:
    """The answer for an episode that is over, or never was."""
    return EpisodeNotRunningError("this episode is not running on this server")


class OpenWork:
    """Open until it is closed; see the module docstring."""

    def __init__(self) -> None:
        self._running: set[asyncio.Future[Any]] = set()
        self._gone: Callable[[], EpisodeNotRunningError] | None = None

    @property
    def is_open(self) -> bool:
        """Whether work may begin."""
        return self._gone is None

    def check_open(self) -> None:
        """Let only what is open pass.

        Raises:
            EpisodeNotRunningError: It was closed.
        """
        if self._gone is not None:
            raise self._gone()

    async def run(self, found: Awaitable[_T]) -> _T:
        """Wait for work; a waiter that is cancelled cancels it.

        Raises:
            EpisodeNotRunningError: It was closed before the work's end.
            BrokenOutError: The work raised what is no `Exception`.
            Exception: The work's own.
        """
        task = asyncio.ensure_future(wait_contained(found))
        if self._gone is not None:
            task.cancel()  # before its first step, so nothing of it runs
        self._running.add(task)
        try:
            return await task
        except asyncio.CancelledError:
            if self._gone is not None:
                raise self._gone() from None
            raise
        finally:
            self._running.discard(task)
            if inspect.iscoroutine(found):
                found.close()  # cancelled before its first step, else it is done

    def close(self, gone: Callable[[], EpisodeNotRunningError] = not_running_error) -> None:
        """Begin nothing any more, and cancel what runs; again changes the answer alone.

        Args:
            gone: Makes the answer from now on.
        """
        self._gone = gone
        for task in list(self._running):
            task.cancel()

    async def wait_ended(self, limit_s: float) -> None:
        """Wait until nothing runs any more, being closed; cancellations of the waiter come after.

        Args:
            limit_s: What does not end by then is left behind, with a log line.
        """
        tasks = set(self._running)
        if not tasks:
            return
        waiter = asyncio.ensure_future(asyncio.wait(tasks, timeout=limit_s))
        try:
            await wait_through(waiter)
        finally:
            left = sum(not task.done() for task in tasks)
            if left:
                _log.error("tools did not end with their episode count=%d", left)
