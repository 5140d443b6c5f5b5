"""The sessions of one process: open ones by id, and the ids of those that ended.

An id that was never open here is unknown (404), one that ended is gone (410) for as long as its
tombstone is kept; the oldest tombstones are forgotten first.

Must not know what a session holds.

Spec: docs/sessions.md#life-of-a-session
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable

from sessions.core.session import Session
from sessions.errors import GoneSessionError, LocalProtocolError, UnknownSessionError


class SessionRegistry:
    """See the module docstring."""

    def __init__(self, mint: Callable[[], str], *, tombstones: int) -> None:
        """Make an empty registry.

        Args:
            mint: Gives a new id that this process owns.
            tombstones: How many ended sessions are remembered.
        """
        self._mint = mint
        self._limit = tombstones
        self._open: dict[str, Session] = {}
        self._ended: OrderedDict[str, str] = OrderedDict()

    def __len__(self) -> int:
        return len(self._open)

    def create_session(self, session_id: str | None = None) -> Session:
        """Open a session.

        Args:
            session_id: Its id; None to mint one.

        Raises:
            LocalProtocolError: A session of that id is open or ended; it is untouched.
        """
        if session_id is None:
            session_id = self._mint()
        if session_id in self._open or session_id in self._ended:
            raise LocalProtocolError(f"session {session_id} exists already")
        session = Session(session_id)
        self._open[session_id] = session
        return session

    def find(self, session_id: str) -> Session:
        """The open session of an id.

        Raises:
            GoneSessionError: It ended; the message says how.
            UnknownSessionError: There was none, or its tombstone is forgotten.
        """
        session = self._open.get(session_id)
        if session is not None:
            return session
        reason = self._ended.get(session_id)
        if reason is not None:
            raise GoneSessionError(f"session {session_id} {reason}")
        raise UnknownSessionError(f"no session {session_id} on this server")

    def end(self, session_id: str, reason: str) -> Session:
        """End a session at once; turns in flight see it at their commit.

        Args:
            session_id: An open session's id.
            reason: Words that follow "session x", such as "was deleted".

        Returns:
            The session, no longer found.

        Raises:
            GoneSessionError: As for `find`.
            UnknownSessionError: As for `find`.
        """
        session = self.find(session_id)
        del self._open[session_id]
        session.end(reason)
        self._ended[session_id] = reason
        while len(self._ended) > self._limit:
            self._ended.popitem(last=False)
        return session
