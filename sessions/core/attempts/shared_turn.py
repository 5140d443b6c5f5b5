"""A turn that runs, and the clients that wait for it: the first one, and those that joined.

Where a client that hangs up takes its turn along, it does so only as the last one.

Must not know what a turn does, nor why a client joins.

Spec: docs/sessions.md#exactly-once
"""

from __future__ import annotations

import asyncio

from sessions.core.attempts.turn_reply import TurnReply


class SharedTurn:
    """See the module docstring.

    Attributes:
        task: The turn; somebody else owns it.
        is_given_up: Nobody waited any more, so it was cancelled; not to be joined.
    """

    __slots__ = ("_clients", "is_given_up", "task")

    def __init__(self, task: asyncio.Task[TurnReply]) -> None:
        self.task = task
        self.is_given_up = False
        self._clients = 0

    def join(self) -> None:
        """One more client waits."""
        self._clients += 1

    def leave(self) -> bool:
        """A client is gone; the last one ends the turn.

        Returns:
            Whether the turn was cancelled; it still has to be awaited.
        """
        self._clients -= 1
        if not self._clients:
            self.is_given_up = True
            self.task.cancel()
        return self.is_given_up
