"""Clean-up of an episode: what was opened last is closed first, in a bounded time, come what may.

Callbacks may be plain or async. All of them share one budget: one that does not end in it is
cancelled and left behind, and those after it still get their start. A callback that fails is
logged and stops none of the others. The stack runs in a task of its own, so no cancellation of
the episode, of its request or of the shard reaches it; `wait_through` is how to wait for it.

Spec: docs/tools.md#clean-up
"""

from __future__ import annotations

import asyncio
import inspect
import logging
from collections.abc import Awaitable, Callable
from typing import Any, Final

from sessions.tools.contained import run_contained, wait_contained

_log: Final = logging.getLogger(__name__)
Callback = Callable[[], Awaitable[object] | object]


class CleanUp:
    """Callbacks of one episode; see the module docstring."""

    def __init__(self) -> None:
        self._callbacks: list[Callback] = []

    def push(self, callback: Callback) -> None:
        """Run a callback at the end, before all that were pushed earlier."""
        self._callbacks.append(callback)

    async def run(self, budget_s: float) -> None:
        """Run all, the last one first; later calls find nothing to do.

        Callbacks that are pushed meanwhile run, too.

        Args:
            budget_s: For all of them together.
        """
        task = asyncio.create_task(self._run(budget_s))
        await wait_through(task)

    async def _run(self, budget_s: float) -> None:
        loop = asyncio.get_running_loop()
        deadline = loop.time() + budget_s
        while self._callbacks:
            callback = self._callbacks.pop()
            try:
                found = run_contained(callback)
                if inspect.isawaitable(found):
                    await _run_until(wait_contained(found), max(deadline - loop.time(), 0.0))
            except Exception:  # noqa: BLE001 - the top of a callback
                _log.exception("clean-up failed callback=%s", _name_of(callback))


async def wait_through(task: asyncio.Future[Any]) -> None:
    """Wait until a task is done, however often the waiter is cancelled meanwhile.

    How the task ended is left to its owner.

    Raises:
        CancelledError: The waiter was cancelled; the task is done all the same.
    """
    was_cancelled: asyncio.CancelledError | None = None
    while not task.done():
        try:
            await asyncio.wait((task,))
        except asyncio.CancelledError as error:
            was_cancelled = error
    if was_cancelled is not None:
        raise was_cancelled


async def _run_until(found: Awaitable[object], limit_s: float) -> None:
    """Wait for an awaitable at most so long; after that it is cancelled, and not waited for."""
    task = asyncio.ensure_future(found)
    done, _ = await asyncio.wait((task,), timeout=limit_s)
    if done:
        task.result()
        return
    task.cancel()
    _log.error("clean-up did not end in its budget and was cancelled task=%s", task)


def _name_of(callback: Callback) -> str:
    return getattr(callback, "__qualname__", repr(callback))
