"""How much replay a shard stores, and what is refused beyond it.

Two edges. From the budget on no session is opened: that passes once others are deleted, so the
client may try again. The sessions that are open go on up to a quarter above it; then a turn is
refused before the engine is asked, since work that cannot be kept is not worth doing.

Must not know how replay is stored.

Spec: docs/replay.md#budget
"""

from __future__ import annotations

from typing import Final

from sessions.errors.group import OverloadedError, ReplayBudgetError
from sessions.replay.blobs import ReplayStore

# A guess: room for the last turns of the sessions that were open at the edge.
_TURNS_SHARE: Final = 4


class ReplayBudget:
    """See the module docstring."""

    def __init__(self, store: ReplayStore, limit_bytes: int) -> None:
        """Watch a store.

        Args:
            store: What is counted.
            limit_bytes: From so many stored bytes on no session is opened.
        """
        self._store = store
        self._limit_bytes = limit_bytes
        self._hard_limit_bytes = limit_bytes + limit_bytes // _TURNS_SHARE

    def check_create(self) -> None:
        """Refuse a new session.

        Raises:
            OverloadedError: The budget is used up; it passes when sessions are deleted.
        """
        stored_bytes = self._store.stored_bytes
        if stored_bytes >= self._limit_bytes:
            raise OverloadedError(
                f"this server stores {stored_bytes} bytes of replay and its budget is"
                f" {self._limit_bytes}: delete sessions that are done"
            )

    def check_turn(self) -> None:
        """Refuse a turn.

        Raises:
            ReplayBudgetError: The store is a quarter over its budget.
        """
        stored_bytes = self._store.stored_bytes
        if stored_bytes >= self._hard_limit_bytes:
            raise ReplayBudgetError(
                f"this server stores {stored_bytes} bytes of replay, a quarter and more over its"
                f" budget of {self._limit_bytes}: delete sessions that are done, then send the"
                " turn again"
            )
