"""The sessions of one process: open ones by id, and the ids of those that ended.

An id that was never open here is unknown (404), one that ended is gone (410) for as long as its
tombstone is kept; the oldest tombstones are forgotten first. Open sessions stand in the order of
their last use, so that the idle ones are found without a search.

Must not know what a session holds.

Spec: docs/sessions.md#life-of-a-session
"""

from __future__ import annotations

import time
from collections import OrderedDict
from collections.abc import Callable

from sessions.core.matchers.fields import STRICT
from sessions.core.matchers.matcher import Matcher
from sessions.core.open_sessions.session import Session
from sessions.core.open_sessions.session_options import DEFAULT_OPTIONS, SessionOptions
from sessions.errors.sessions import GoneSessionError, UnknownSessionError
from sessions.errors.unseen import LocalProtocolError


class SessionRegistry:
    """See the module docstring.

    Attributes:
        ended_count: Sessions that ended, since the start.
    """

    def __init__(
        self,
        mint: Callable[[], str],
        *,
        tombstones: int,
        matcher: Matcher = STRICT,
        now: Callable[[], float] = time.monotonic,
    ) -> None:
        """Make an empty registry.

        Args:
            mint: Gives a new id that this process owns.
            tombstones: How many ended sessions are remembered.
            matcher: Says in all sessions which messages are the same.
            now: A clock, seconds.
        """
        self.ended_count = 0
        self._mint = mint
        self._limit = tombstones
        self._matcher = matcher
        self._now = now
        self._open: OrderedDict[str, Session] = OrderedDict()
        self._ended: OrderedDict[str, str] = OrderedDict()

    def __len__(self) -> int:
        return len(self._open)

    def create_session(
        self, session_id: str | None = None, options: SessionOptions = DEFAULT_OPTIONS
    ) -> Session:
        """Open a session.

        Args:
            session_id: Its id; None to mint one.
            options: How it behaves.

        Raises:
            LocalProtocolError: A session of that id is open or ended; it is untouched.
        """
        if session_id is None:
            session_id = self._mint()
        if session_id in self._open or session_id in self._ended:
            raise LocalProtocolError(f"session {session_id} exists already")
        session = self._open[session_id] = Session(session_id, options, self._matcher)
        session.used_at = self._now()
        return session

    def find(self, session_id: str) -> Session:
        """The open session of an id; it counts as used now.

        Raises:
            GoneSessionError: It ended; the message says how.
            UnknownSessionError: There was none, or its tombstone is forgotten.
        """
        session = self._open.get(session_id)
        if session is not None:
            session.used_at = self._now()
            self._open.move_to_end(session_id)
            return session
        reason = self._ended.get(session_id)
        if reason is not None:
            raise GoneSessionError(f"session {session_id} {reason}")
        raise UnknownSessionError(f"no session {session_id} on this server")

    def touch(self, session: Session) -> None:
        """A session counts as used now; nothing happens if it ended."""
        if session.session_id in self._open:
            self.find(session.session_id)

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
        self.ended_count += 1
        self._ended[session_id] = reason
        while len(self._ended) > self._limit:
            self._ended.popitem(last=False)
        return session

    def end_idle(self, idle_s: float) -> list[Session]:
        """End the sessions that nobody used for so long and that have no turn in flight.

        Args:
            idle_s: Seconds since the last use.

        Returns:
            The sessions, no longer found.
        """
        ended = []
        while self._open:
            session_id, session = next(iter(self._open.items()))
            if self._now() - session.used_at < idle_s:
                break
            if session.turns_in_flight:
                self.find(session_id)
            else:
                ended.append(self.end(session_id, f"expired: nobody used it for {idle_s:g} s"))
        return ended
