"""The farewell of a shard: an answer for each exchange that the end of the process overtakes.

When the graceful time is over, or at once when the process must hurry, an exchange without a byte
of its reply gets a 503 that says why; a reply in the middle is cut. A loan that crosses the signal
on its way gets the same a moment later. Who had to be cut has not drained: the process then ends
without the application's lifespan, which would wait for what was cut.

Spec: docs/architecture.md#life-and-death
"""

from __future__ import annotations

import asyncio
from typing import Final, Protocol

from sessions.errors.client_visible import ClientVisibleError
from sessions.lending.group import Life
from sessions.lending.overdue import wait_overdue
from sessions.settings import Settings

_AGAIN_S: Final = 0.05


class Exchanges(Protocol):
    """Who holds the exchanges of this process."""

    def give_up(self, error: ClientVisibleError) -> int:
        """End every exchange, with the error if no reply began; how many were cut by that."""


class Farewell:
    """Waits for the moment, then ends exchanges until the role does; see the module docstring."""

    def __init__(self, settings: Settings, life: Life, exchanges: Exchanges) -> None:
        """Wait from now on.

        Args:
            settings: For the graceful limit.
            life: Tells of the stop.
            exchanges: What is ended.
        """
        self._settings = settings
        self._life = life
        self._exchanges = exchanges
        self._cut_count = 0
        self._task = asyncio.create_task(self._speak())

    def end(self) -> None:
        """The role has nothing more to wait for; ends the process if anything was cut."""
        self._task.cancel()
        if self._cut_count:
            self._life.end_cut(f"requests cut: {self._cut_count}")

    async def _speak(self) -> None:
        error = await wait_overdue(self._settings, self._life)
        while True:
            self._cut_count += self._exchanges.give_up(error)
            await asyncio.sleep(_AGAIN_S)
