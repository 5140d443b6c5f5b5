"""The routes of seeded sessions: seed, the tools, verify, close.

A body names the session of a seed and a close in `resources_session_id`; the calls between are
named by their cookie or token. Bodies are JSON objects.

Spec: docs/tools.md#sessions-seeded-by-a-request
"""

from __future__ import annotations

import asyncio
import math
import secrets
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, Final

from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response
from starlette.routing import Route

from sessions.errors.client_visible import RequestError
from sessions.errors.unseen import LocalProtocolError
from sessions.routing.episodes import EpisodeId
from sessions.routing.kinds import BodyNaming
from sessions.tools.context import ToolContext
from sessions.tools.http_json import json_reply_of, read_object, run_while_connected
from sessions.tools.seeded_session import CLOSE_ROUTE, SEED_ROUTE, VERIFY_ROUTE, SeededSession
from sessions.tools.seeded_sessions import SeededSessions
from sessions.tools.session_door import SessionDoor, bring_cookie
from sessions.tools.session_tokens import SESSION_TOKEN_HEADER, SessionTokens
from sessions.wire.mcp_refusals import MCP_PATH

SESSION_FIELD: Final = "resources_session_id"
BODY_NAMING: Final = BodyNaming(
    field=SESSION_FIELD,
    seed_routes=frozenset({f"/{SEED_ROUTE}"}),
    close_routes=frozenset({f"/{CLOSE_ROUTE}"}),
)
_ID_BYTES: Final = 16
_ID_LIMIT: Final = 1024
Verdict = Mapping[str, Any] | float
Verify = Callable[[dict[str, Any], SeededSession], Awaitable[Verdict]]


class SessionRoutes:
    """See the module docstring."""

    def __init__(
        self,
        context: ToolContext,
        sessions: SeededSessions,
        door: SessionDoor,
        tokens: SessionTokens,
        verify: Verify,
    ) -> None:
        """Serve the sessions of a shard.

        Args:
            context: Of the shard.
            sessions: Of the shard.
            door: To them.
            tokens: Sign what clients of MCP get.
            verify: Grades one.
        """
        self._context = context
        self._sessions = sessions
        self._door = door
        self._tokens = tokens
        self._verify = verify

    @property
    def routes(self) -> list[Route]:
        """In the order in which they are tried."""
        return [
            Route(f"/{SEED_ROUTE}", self._seed, methods=["POST"]),
            Route(f"/{CLOSE_ROUTE}", self._close, methods=["POST"]),
            Route(f"/{VERIFY_ROUTE}", self._grade, methods=["POST"]),
            self._sessions.stops.route,
            Route("/{name}", self._call, methods=["POST"]),
        ]

    async def _seed(self, request: Request) -> Response:
        body = await read_object(request)
        given = session_id_in(body)
        session = SeededSession(id=given or secrets.token_hex(_ID_BYTES), rollout=_rollout_in(body))
        if given is not None:
            session = await self._sessions.seed(session, body)
        else:
            await self._seed_unnamed(request, session, body)
        bring_cookie(request.scope, session.id)
        grant = self._grant_of(request, session)
        return json_reply_of({**session.told, SESSION_FIELD: session.id, "mcp": grant})

    async def _seed_unnamed(
        self, request: Request, session: SeededSession, body: dict[str, Any]
    ) -> None:
        """Seed a session that only the reply will name: without a client nobody can reach it."""
        try:
            await run_while_connected(request.receive, self._sessions.seed(session, body))
        except (ClientDisconnect, asyncio.CancelledError):
            self._sessions.abandon(session.id)
            raise

    def _grant_of(self, request: Request, session: SeededSession) -> dict[str, Any]:
        token = self._tokens.sign(session.id, session.over_mcp)
        return {
            "url": self._context.origin_of(request.scope) + MCP_PATH,
            "url_path": MCP_PATH,
            "transport": "http",
            "headers": {SESSION_TOKEN_HEADER: token},
        }

    async def _close(self, request: Request) -> Response:
        body = await read_object(request)
        session_id = session_id_in(body) or self._door.owned_by(request.headers)
        status = await self._sessions.close(session_id)
        return json_reply_of({SESSION_FIELD: session_id, "status": status})

    async def _grade(self, request: Request) -> Response:
        session = self._sessions.find(self._door.owned_by(request.headers))
        body = await read_object(request)
        with session.used():
            work = session.verdicts.run(self._verify(body, session))
            verdict = await run_while_connected(request.receive, work)
        return json_reply_of(_verdict_to_json(verdict))

    async def _call(self, request: Request) -> Response:
        granted = self._door.granted_to(request.headers)
        name = request.path_params["name"]
        granted.check(name)
        arguments = await read_object(request)
        with granted.session.used():
            call, rest = granted.session.served.begin(name, arguments)
            if rest is not None:
                await run_while_connected(request.receive, rest)
        return json_reply_of(call.result)


def session_id_in(body: Mapping[str, Any]) -> str | None:
    """The id that a body gives, or None if it gives none.

    Raises:
        RequestError: It is no text of 1 to 1024 characters.
    """
    given = body.get(SESSION_FIELD)
    if given is None:
        return None
    if not isinstance(given, str) or not 1 <= len(given) <= _ID_LIMIT:
        message = f"{SESSION_FIELD} is not a text of 1 to {_ID_LIMIT} characters"
        raise RequestError(message, param=SESSION_FIELD)
    return given


def _rollout_in(body: Mapping[str, Any]) -> EpisodeId | None:
    """The rollout that a seed says it is for, or None.

    Raises:
        RequestError: What it says names none.
    """
    rollout_id, attempt = body.get("rollout_id"), body.get("attempt", 0)
    if rollout_id is None:
        return None
    if not isinstance(rollout_id, str):
        raise RequestError("rollout_id is not a text", param="rollout_id")
    if type(attempt) is not int:  # a bool is none
        raise RequestError("attempt is not a whole number", param="attempt")
    return EpisodeId(rollout_id=rollout_id, attempt=attempt)


def _verdict_to_json(verdict: Verdict) -> dict[str, Any]:
    """A verdict as its reply.

    Raises:
        LocalProtocolError: It has no reward, or one that JSON cannot say.
    """
    told = dict(verdict) if isinstance(verdict, Mapping) else {"reward": verdict}
    reward = told.get("reward")
    if isinstance(reward, bool) or not isinstance(reward, int | float) or not math.isfinite(reward):
        raise LocalProtocolError(f"a verdict has no finite reward: {reward!r}")
    return told
