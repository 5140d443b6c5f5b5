"""How much a shard has to do, as far as new sessions go: what placement compares.

A request that names no session counts from the moment in which it is lent there until it ends or a
session was claimed, which then counts instead until the claim is released. So the router knows
exactly where applications that claim have their sessions. Those of others stand on the board, which
a shard writes once a second: a request that ended since counts as a session until the board can
have it. Pure: it reads neither board nor clock.

Spec: docs/routing.md#placement
"""

from __future__ import annotations

from collections import deque
from typing import Final

_RECENT_LIMIT: Final = 65536  # a guess: many times the requests of one shard between two beats


class Load:
    """Counts of one shard; see the module docstring.

    Attributes:
        last_turn: Number of the last choice that fell on the shard; the smallest wins a tie.
    """

    __slots__ = ("_claims", "_pending", "_recent", "_sessions", "last_turn")

    def __init__(self) -> None:
        self.last_turn = 0
        self._claims = 0
        self._pending = 0
        self._sessions = 0
        self._recent: deque[float] = deque(maxlen=_RECENT_LIMIT)  # when requests ended

    @property
    def count(self) -> int:
        """Sessions, and requests that may become some."""
        return self._claims + self._pending + self._sessions + len(self._recent)

    def arrive(self) -> None:
        """A request that names no session was lent to the shard."""
        self._pending += 1

    def leave(self) -> None:
        """Such a request is over; if its session was claimed, it did not count any more."""
        if self._pending:
            self._pending -= 1

    def note_end(self, now: float) -> None:
        """Such a request is over, and may have opened a session that the board does not show yet.

        Args:
            now: Seconds on the router's clock.
        """
        self._recent.append(now)

    def open(self) -> None:
        """A session was claimed: by a request that had arrived, if there is one."""
        self._claims += 1
        self.leave()

    def close(self) -> None:
        """A claim was released."""
        self._claims -= 1

    def refresh(self, sessions: int, as_of: float) -> None:
        """Take what the board shows.

        Args:
            sessions: Open ones.
            as_of: When the shard wrote that, in seconds on the router's clock.
        """
        self._sessions = sessions
        while self._recent and self._recent[0] < as_of:
            self._recent.popleft()
