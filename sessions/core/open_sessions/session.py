"""One open session: its history, its lock, and what is noted about it.

The lock covers the preparation and the commit of a turn, never the engine's work in between, so
turns of one session may overlap; which of them is recorded is the history's decision.

Must not know how turns run.

Spec: docs/sessions.md#life-of-a-session
"""

from __future__ import annotations

import asyncio
from collections import deque
from typing import Final

from sessions.core.attempts.seen_requests import SeenRequests
from sessions.core.histories.checkpoint import Checkpoint
from sessions.core.histories.history import History
from sessions.core.histories.linear import LinearHistory
from sessions.core.histories.node import leaves_of
from sessions.core.histories.tree import TreeHistory
from sessions.core.matchers.fields import STRICT
from sessions.core.matchers.matcher import Matcher
from sessions.core.open_sessions.session_limits import SessionLimits
from sessions.core.open_sessions.session_options import DEFAULT_OPTIONS, SessionMode, SessionOptions
from sessions.core.texts.json_text import JsonObject
from sessions.errors.sessions import GoneSessionError

_CANCELLED_KEPT: Final = 64


class Session:
    """See the module docstring.

    Attributes:
        options: What its client decided when it was opened.
        limits: What it holds, and whether it takes more.
        requests: The chat requests that it has seen.
        used_at: When somebody asked for it last, by the registry's clock.
        turns_in_flight: Turns that run; it does not expire meanwhile.
    """

    def __init__(
        self,
        session_id: str,
        options: SessionOptions = DEFAULT_OPTIONS,
        matcher: Matcher = STRICT,
    ) -> None:
        self.session_id: Final = session_id
        self.options: Final = options
        self.limits: Final = SessionLimits(options)
        # Of two turns in flight that are the same, a linear session could record only one.
        self.requests: Final = SeenRequests(joins_unmarked=options.mode is SessionMode.LINEAR)
        self.history: Final[History] = _history_of(options, matcher)
        self.lock: Final = asyncio.Lock()
        # The newest only: a client that always hangs up must not fill the memory.
        self.cancelled_turns: Final[deque[JsonObject]] = deque(maxlen=_CANCELLED_KEPT)
        self.used_at = 0.0
        self.turns_in_flight = 0
        self._ended = ""
        self._mismatches: dict[Checkpoint, JsonObject] = {}

    @property
    def is_ended(self) -> bool:
        """Whether the session ended; nothing is committed to it any more."""
        return bool(self._ended)

    def end(self, reason: str) -> None:
        """End it, in words that follow "session x"."""
        self._ended = reason

    def check_open(self) -> None:
        """Refuse to work for an ended session.

        Raises:
            GoneSessionError: It ended.
        """
        if self._ended:
            raise GoneSessionError(f"session {self.session_id} {self._ended}")

    def known_mismatch(self, checkpoint: Checkpoint) -> JsonObject | None:
        """The metadata members that were kept for a checkpoint, or None."""
        return self._mismatches.get(checkpoint)

    def keep_mismatch(self, checkpoint: Checkpoint, members: JsonObject) -> None:
        """Keep metadata members that cost a comparison, for as long as no turn goes on from it.

        Nothing is kept of turns that are no longer a leaf of the history, or no longer part of it.
        """
        leaves = {leaf.checkpoint for leaf in leaves_of(self.history.nodes)}
        known = {**self._mismatches, checkpoint: members}
        self._mismatches = {kept: told for kept, told in known.items() if kept in leaves}


def _history_of(options: SessionOptions, matcher: Matcher) -> History:
    if options.mode is SessionMode.TREE:
        return TreeHistory(options.max_tree_turns, matcher)
    return LinearHistory(matcher)
