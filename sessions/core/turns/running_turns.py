"""The turns that run: each in a task that outlives its client, counted when it ends.

Must not know what a turn does.

Spec: docs/sessions.md#client-gone
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Coroutine
from dataclasses import dataclass
from functools import partial
from http import HTTPStatus
from typing import Any

from sessions.core.attempts.shared_turn import SharedTurn
from sessions.core.attempts.turn_reply import TurnReply
from sessions.core.open_sessions.session import Session
from sessions.errors.client_visible import ClientVisibleError, InternalError

_log = logging.getLogger(__name__)


@dataclass(slots=True, kw_only=True)
class TurnCounts:
    """How turns ended.

    Attributes:
        recorded: Committed.
        unrecorded: The engine answered with 200, and nothing was committed.
        failed: An error, the engine's refusals and cancelled turns included.
    """

    recorded: int = 0
    unrecorded: int = 0
    failed: int = 0


class RunningTurns:
    """See the module docstring.

    Attributes:
        counts: Since the start.
    """

    def __init__(self) -> None:
        self.counts = TurnCounts()
        self._turns: set[asyncio.Task[TurnReply]] = set()

    def __len__(self) -> int:
        return len(self._turns)

    def start(self, session: Session, turn: Coroutine[Any, Any, TurnReply]) -> SharedTurn:
        """Run a turn in a task of its own.

        Args:
            session: Whose turn it is.
            turn: What to run.

        Returns:
            The turn; nobody has to wait for it.
        """
        task = asyncio.create_task(_logged(session.session_id, turn))
        self._turns.add(task)
        session.turns_in_flight += 1
        task.add_done_callback(partial(self._on_done, session))
        return SharedTurn(task)

    def _on_done(self, session: Session, task: asyncio.Task[TurnReply]) -> None:
        self._turns.discard(task)
        session.turns_in_flight -= 1
        # Its client may be gone; then nobody else asks how the turn ended.
        if task.cancelled() or task.exception() is not None or task.result().body is None:
            self.counts.failed += 1
        elif task.result().is_recorded:
            self.counts.recorded += 1
        else:
            self.counts.unrecorded += 1

    async def close(self) -> None:
        """End the turns that are left."""
        for turn in self._turns:
            turn.cancel()
        await asyncio.gather(*self._turns, return_exceptions=True)


async def _logged(session_id: str, turn: Coroutine[Any, Any, TurnReply]) -> TurnReply:
    """The top of a turn: it may have no client left, so its failures are logged here."""
    try:
        return await turn
    except ClientVisibleError as error:
        if error.status >= HTTPStatus.INTERNAL_SERVER_ERROR:
            # Not the message: it may quote the engine's reply.
            _log.warning("turn failed session=%s code=%s", session_id, error.code)
        raise
    except Exception as error:
        _log.exception("turn failed session=%s", session_id)
        raise InternalError("the turn failed for a reason of ours") from error
