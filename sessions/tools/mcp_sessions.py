"""Stateful MCP behind many shards: sessions of the older protocol, each kept at its shard.

An application that speaks MCP with sessions gives each client an id in the reply to `initialize`,
and keeps what belongs to it in its own process. `McpSessions` goes around such an application: it
claims the id before the reply that announces it is sent, so that every later request that carries
it comes to this shard, over whichever connection. The claim is given up when the session is ended
by its client or is not known to the application any more, and when nobody used it for long.

It reads heads alone, and knows nothing of what the application does.

Spec: docs/tools.md#mcp-sessions
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from starlette.datastructures import Headers
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from sessions.routing.claim_keys import claim_key
from sessions.routing.claimed_kinds import MCP_SESSION, MCP_SESSIONS
from sessions.routing.kinds import SessionKind
from sessions.tools.claims import Claims, LocalClaims
from sessions.wire.mcp_refusals import is_mcp_path

IDLE_S: Final = 1860.0  # a minute more than the SDK's own limit, so that it ends sessions first
_HEADER: Final = "mcp-session-id"
_NOT_FOUND: Final = 404  # the protocol's word for: this session is over, initialize again
_ERROR: Final = 400


@dataclass(slots=True)
class _Use:
    """How a session is used.

    Attributes:
        requests: In flight.
        last: Loop time of the last one's begin or end.
    """

    requests: int
    last: float


class McpSessions:
    """An ASGI application around one that speaks stateful MCP on `/mcp`."""

    def __init__(self, app: ASGIApp, *, idle_s: float = IDLE_S) -> None:
        """Go around an application.

        Args:
            app: The application.
            idle_s: A session that no request uses for so long is given up; longer than the
                application's own limit, else it cannot be reached while it is still there.
        """
        self._app = app
        self._idle_s = idle_s
        self._claims: Claims = LocalClaims()
        self._held: dict[str, _Use] = {}  # by session id
        self._timer: asyncio.TimerHandle | None = None

    @property
    def session_kinds(self) -> Sequence[SessionKind]:
        """Sessions of MCP, by the header that carries their id."""
        return (MCP_SESSIONS,)

    @property
    def held(self) -> int:
        """How many sessions are claimed now."""
        return len(self._held)

    def use_claims(self, claims: Claims) -> None:
        """Claim sessions with these, from the first request on."""
        self._claims = claims

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one request, or the lifespan."""
        if scope["type"] != "http" or not is_mcp_path(scope.get("raw_path") or b""):
            await self._app(scope, receive, send)
            return
        named = Headers(scope=scope).get(_HEADER, "").strip()
        use = self._begin_use(named)
        is_end = scope["method"] == "DELETE"

        async def watched_send(message: Message) -> None:
            if message["type"] == "http.response.start":
                await self._see_reply(message, named, is_end=is_end)
            await send(message)

        try:
            await self._app(scope, receive, watched_send)
        finally:
            if use is not None:
                use.requests -= 1
                use.last = asyncio.get_running_loop().time()

    def _begin_use(self, session_id: str) -> _Use | None:
        use = self._held.get(session_id)
        if use is not None:
            use.requests += 1
        return use

    async def _see_reply(self, start: Message, named: str, *, is_end: bool) -> None:
        """Claim the session that a reply announces, or give up the one that it ends."""
        status: int = start["status"]
        if status == _NOT_FOUND or (is_end and status < _ERROR):
            self._give_up(named)
            return
        announced = Headers(raw=list(start.get("headers", []))).get(_HEADER, "")
        if announced and announced not in self._held and status < _ERROR:
            await self._claims.claim(claim_key(MCP_SESSION, announced))
            self._held[announced] = _Use(0, asyncio.get_running_loop().time())
            self._wait_idle()

    def _give_up(self, session_id: str) -> None:
        if self._held.pop(session_id, None) is not None:
            self._claims.release(claim_key(MCP_SESSION, session_id))
        if not self._held and self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _wait_idle(self) -> None:
        if self._timer is None:
            loop = asyncio.get_running_loop()
            self._timer = loop.call_later(self._idle_s / 2, self._give_up_idle)

    def _give_up_idle(self) -> None:
        self._timer = None
        before = asyncio.get_running_loop().time() - self._idle_s
        for session_id, use in list(self._held.items()):
            if not use.requests and use.last <= before:
                self._give_up(session_id)
        if self._held:
            self._wait_idle()
