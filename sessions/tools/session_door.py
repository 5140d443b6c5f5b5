"""Who may call which session: the cookie of a request, or its session token.

On `/mcp` only the token counts, since a client of MCP keeps no cookies; elsewhere the cookie if
there is one, else the token. What was not signed by this run is refused and begins nothing. The
router reads the same names in the same order, so a request is at the shard of its session.

`CookieResent` sends the session's cookie with every reply, errors too: some clients keep only the
cookies of the last reply.

Spec: docs/tools.md#who-may-call
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from starlette.datastructures import Headers
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from sessions.errors.seeded_sessions import (
    BadSessionCookieError,
    BadSessionTokenError,
    ToolNotGrantedError,
)
from sessions.tools.seeded_session import GrantedTools
from sessions.tools.seeded_sessions import SeededSessions
from sessions.tools.session_cookie import SessionCookie
from sessions.tools.session_tokens import SESSION_TOKEN_HEADER, SessionToken, SessionTokens

_SESSION: Final = "sessions.session_id"  # in the scope: whose cookie the reply brings


class SessionDoor:
    """Finds the session of a request; see the module docstring."""

    def __init__(
        self, cookie: SessionCookie, tokens: SessionTokens, sessions: SeededSessions
    ) -> None:
        """Open a door to the sessions of a shard."""
        self._cookie = cookie
        self._tokens = tokens
        self._sessions = sessions

    def owned_by(self, headers: Headers) -> str:
        """The id of the session that a request may grade and close: a cookie is needed for that.

        Raises:
            BadSessionCookieError: There is none, or a bad one.
            BadSessionTokenError: There is a bad token instead.
            ToolNotGrantedError: There is a token instead, which lets tools be called alone.
        """
        session_id, names = self._named_in(headers)
        if names is not None:
            raise ToolNotGrantedError("the session token lets its holder call tools alone")
        return session_id

    def granted_to(self, headers: Headers) -> GrantedTools:
        """What a request may call that is not for MCP.

        Raises:
            BadSessionCookieError: There is neither cookie nor token, or a bad cookie.
            BadSessionTokenError: There is no cookie, and a bad token.
            SessionNotOpenError: The session is not open.
        """
        session_id, names = self._named_in(headers)
        return GrantedTools(self._sessions.find(session_id), names)

    def tools_for(self, headers: Mapping[str, str]) -> GrantedTools:
        """What a request for MCP may call.

        Raises:
            BadSessionTokenError: There is no token, or a bad one.
            SessionNotOpenError: The session is not open.
        """
        token = self._token_in(headers)
        if token is None:
            raise BadSessionTokenError(
                f"the request has no session token in {SESSION_TOKEN_HEADER}"
            )
        return GrantedTools(self._sessions.find(token.session_id), token.tools)

    def _named_in(self, headers: Headers) -> tuple[str, frozenset[str] | None]:
        """A session's id, and the names of the tools that may be called, None for all."""
        session_id = self._cookie.session_in(headers.raw)
        if session_id is not None:
            return session_id, None
        token = self._token_in(headers)
        if token is None:
            raise BadSessionCookieError(
                "the request has no session cookie: seed a session, and send its cookie with"
                " every call"
            )
        return token.session_id, token.tools

    def _token_in(self, headers: Mapping[str, str]) -> SessionToken | None:
        text = headers.get(SESSION_TOKEN_HEADER.lower(), "").strip(" \t")
        return self._tokens.read(text) if text else None


class CookieResent:
    """An application whose replies bring the cookie of the session that they are about."""

    def __init__(self, app: ASGIApp, cookie: SessionCookie) -> None:
        self._app = app
        self._cookie = cookie

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """One request."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        scope = {**scope, _SESSION: [self._named_in(scope)]}

        async def sending(message: Message) -> None:
            (session_id,) = scope[_SESSION]
            if message["type"] == "http.response.start" and session_id is not None:
                header = (b"set-cookie", self._cookie.header_of(session_id))
                message = {**message, "headers": [*message.get("headers", []), header]}
            await send(message)

        await self._app(scope, receive, sending)

    def _named_in(self, scope: Scope) -> str | None:
        try:
            return self._cookie.session_in(scope["headers"])
        except BadSessionCookieError:
            return None  # refused by who needs it


def bring_cookie(scope: Scope, session_id: str) -> None:
    """Let the reply to a request bring the cookie of this session, and no other."""
    scope[_SESSION][0] = session_id
