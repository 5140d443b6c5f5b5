"""Sessions that are over: what is remembered of them, so that nothing is opened twice.

An ended session keeps its claim, so whatever comes late for it (a seed, a close, a call) reaches
the shard that remembers how it ended. Only so many are remembered; of the oldest the claim is given
up.

Spec: docs/tools.md#seed-and-close
"""

from __future__ import annotations

import enum

from sessions.errors.seeded_sessions import SessionNotOpenError, SessionReleasedError
from sessions.tools.claims import Claims
from sessions.tools.seeded_session import not_open_error


class Ending(enum.Enum):
    """How a session ended."""

    CLOSED = "closed"
    EXPIRED = "expired"
    NEVER_SEEDED = "never_seeded"


class SessionEndings:
    """By claim key, oldest first; see the module docstring."""

    def __init__(self, claims: Claims, limit: int) -> None:
        """Remember nothing.

        Args:
            claims: Where the sessions are claimed.
            limit: How many are remembered.
        """
        self._claims = claims
        self._limit = limit
        self._endings: dict[bytes, Ending] = {}

    def __len__(self) -> int:
        return len(self._endings)

    def find(self, key: bytes) -> Ending | None:
        """How a session ended, or None if that is not known."""
        return self._endings.get(key)

    def add(self, key: bytes, ending: Ending) -> None:
        """A session ended whose claim this shard holds."""
        self._endings[key] = ending
        self._claims.end(key)
        while len(self._endings) > self._limit:
            oldest = next(iter(self._endings))
            del self._endings[oldest]
            self._claims.release(oldest)

    def gone_error(self, key: bytes) -> SessionNotOpenError:
        """The answer to a call of a session that is not open."""
        ending = self._endings.get(key)
        why = {Ending.CLOSED: "it was closed, ", Ending.EXPIRED: "it expired, "}
        return not_open_error("" if ending is None else why.get(ending, ""))


def released_error(session_id: str, ending: Ending) -> SessionReleasedError:
    """The answer to a seed of a session that is over."""
    how = "was closed before it was seeded" if ending is Ending.NEVER_SEEDED else "is over"
    return SessionReleasedError(
        f"session {session_id!r} {how}: an id is seeded once", param="resources_session_id"
    )
