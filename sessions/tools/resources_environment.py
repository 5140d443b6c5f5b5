"""`ResourcesEnvironment`: what a user subclasses to serve sessions that requests seed.

Where an episode of a `ToolEnvironment` is run by the server, here the agent is outside and drives:
it seeds a session, calls its tools, each a route of its own, has it graded and closes it. The
session lives in the shard that seeded it; its signed cookie, or for clients of MCP its token,
brings every call there.

Must not know processes or channels.

Spec: docs/tools.md#sessions-seeded-by-a-request
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import Any, Final

from starlette.applications import Starlette
from starlette.middleware import Middleware

from sessions.routing.claimed_kinds import ROLLOUT_STOPS, environment_kind
from sessions.routing.kinds import SessionKind
from sessions.tools.context import ToolContext
from sessions.tools.seeded_session import SeededSession
from sessions.tools.seeded_sessions import SeededSessions
from sessions.tools.session_cookie import SessionCookie
from sessions.tools.session_door import CookieResent, SessionDoor
from sessions.tools.session_routes import BODY_NAMING, SessionRoutes, Verdict
from sessions.tools.session_tokens import SESSION_TOKEN_HEADER, SessionTokens
from sessions.tools.tool_app import tool_app


class ResourcesEnvironment:
    """Serves sessions; see the module docstring. A subclass implements `seed` and `verify`.

    Attributes:
        context: Of the shard.
    """

    def __init__(self, context: ToolContext) -> None:
        """Have no session yet; a subclass that has an own constructor calls this one.

        Args:
            context: Of the shard.
        """
        self.context: Final = context
        label = type(self).__name__
        self._cookie: Final = SessionCookie(label, context.run_secret)
        self._tokens: Final = SessionTokens(label, context.run_secret)
        self._sessions: Final = SeededSessions(context, self)

    # --- what a subclass implements

    async def seed(self, request: dict[str, Any], session: SeededSession) -> Mapping[str, Any]:
        """Make a session; called once for each, however often its client asks.

        Puts what belongs to the session into `session.state` and its tools into
        `session.serve_tools`.

        Args:
            request: The body of `POST /seed_session`.
            session: Which one.

        Returns:
            What the reply says besides the session's id and its grant for MCP.

        Raises:
            ClientVisibleError: Becomes the answer; any other exception becomes a 500. The session
                is closed and its id free.
        """
        raise NotImplementedError

    async def verify(self, request: dict[str, Any], session: SeededSession) -> Verdict:
        """Grade a session.

        Args:
            request: The body of `POST /verify`.
            session: Which one; its rollout may have been stopped.

        Returns:
            The reward, or an object with `reward` and whatever else the reply shall say.

        Raises:
            ClientVisibleError: Becomes the answer; any other exception becomes a 500.
        """
        raise NotImplementedError

    async def close(self, session: SeededSession) -> None:
        """Give up what a session has; for all that `seed` was called for, whatever came of it.

        So the state may be half there. No call runs any more. When this raises, the session counts
        as not closed, and this is called again by the next `POST /close_session`.
        """

    async def start(self) -> None:
        """Open what all sessions of this shard share; called once, before the first."""

    async def stop(self) -> None:
        """Close what `start` opened; called once, after the last session was closed."""

    # --- what the shard uses

    @property
    def session_kinds(self) -> Sequence[SessionKind]:
        """How requests name sessions, and rollouts that are to be stopped."""
        kind = environment_kind(
            cookie=self._cookie.name, token_header=SESSION_TOKEN_HEADER, body=BODY_NAMING
        )
        return (ROLLOUT_STOPS, kind)  # a cookie that comes along with a stop may be another's

    @property
    def open_sessions(self) -> int:
        """How many sessions this shard has."""
        return len(self._sessions)

    def app(self) -> Starlette:
        """The application of this environment; made once."""
        door = SessionDoor(self._cookie, self._tokens, self._sessions)
        routes = SessionRoutes(self.context, self._sessions, door, self._tokens, self.verify)
        resent = Middleware(CookieResent, cookie=self._cookie)
        return tool_app(routes.routes, door, self._tool_life, self.context.mcp, (resent,))

    async def sweep(self) -> None:
        """Take no more sessions and close all; bounded, what does not end is left behind."""
        await self._sessions.sweep()

    @asynccontextmanager
    async def _tool_life(self, _app: Starlette) -> AsyncIterator[None]:
        await self.start()
        try:
            yield
        finally:
            await self.sweep()
            await self.stop()
