"""A small stand-in for a sessile server, for tests of what speaks to one.

It keeps sessions in a dict and answers create, records, delete and health as the real one does; a
test sets its health, or puts a canned reply on a path.

Spec: docs/architecture.md#tests
"""

from __future__ import annotations

import asyncio
from typing import Any, Final

import httpx
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from sessions.errors.client_visible import ClientVisibleError
from sessions.errors.sessions import GoneSessionError, UnknownSessionError
from tests.support.apps import App, Message, Receive, Send

URL: Final = "http://server.test"


def shard(
    index: int, state: str = "ready", *, pid: int = 0, beat_age_s: float | None = 0.1
) -> dict[str, object]:
    """One row of a health document."""
    return {
        "index": index,
        "state": state,
        "pid": pid or 100 + index,
        "beat_age_s": beat_age_s,
        "sessions": 0,
        "requests": 0,
    }


class FakeServer:
    """The stand-in; `app` is its ASGI application."""

    def __init__(self) -> None:
        self.sessions: dict[str, list[dict[str, Any]]] = {}
        self.deleted: set[str] = set()
        self.health: dict[str, Any] = {
            "status": "ok",
            "instance_id": "f" * 32,
            "version": "0",
            "uptime_s": 1.5,
            "shards": [shard(0), shard(1)],
            "cause": "",
        }
        self.canned: dict[str, Response] = {}
        self.seen: list[Request] = []
        self.bodies: list[bytes] = []
        routes = [
            Route("/sessions", self._create, methods=["POST"]),
            Route("/sessions/{session_id}", self._records, methods=["GET"]),
            Route("/sessions/{session_id}", self._delete, methods=["DELETE"]),
            Route("/healthz", self._healthz),
        ]
        handlers = {ClientVisibleError: _error_reply}
        self._routed = Starlette(routes=routes, exception_handlers=handlers)

    async def app(self, scope: Message, receive: Receive, send: Send) -> None:
        """ASGI 3."""
        request = Request(scope, receive)
        self.seen.append(request)
        self.bodies.append(await request.body())
        app = self.canned.get(scope["path"], self._routed)
        await app(scope, receive, send)

    async def _create(self, _request: Request) -> Response:
        session_id = f"{len(self.sessions):032x}"
        self.sessions[session_id] = []
        base = f"{URL}/sessions/{session_id}"
        created = {
            "session_id": session_id,
            "base_url": f"{base}/v1",
            "anthropic_base_url": base,
            "session_key": f"{session_id}.{'a' * 32}",
        }
        return JSONResponse(created)

    async def _records(self, request: Request) -> Response:
        session_id = self._find(request)
        metadata = {"accumulated_token_ids": [], "max_trim_tokens": 0}
        records = self.sessions[session_id]
        found = {"session_id": session_id, "records": records, "metadata": metadata}
        return JSONResponse(found)

    async def _delete(self, request: Request) -> Response:
        session_id = self._find(request)
        del self.sessions[session_id]
        self.deleted.add(session_id)
        return Response(status_code=204)

    def _find(self, request: Request) -> str:
        session_id: str = request.path_params["session_id"]
        if session_id in self.deleted:
            raise GoneSessionError(f"session {session_id} was deleted")
        if session_id not in self.sessions:
            raise UnknownSessionError(f"no session {session_id}")
        return session_id

    async def _healthz(self, _request: Request) -> Response:
        return JSONResponse(self.health, 200 if self.health["status"] == "ok" else 503)


async def _error_reply(_request: Request, error: Exception) -> Response:
    assert isinstance(error, ClientVisibleError)
    return Response(error.body, error.status, dict(error.headers))


class BlockingAsgiTransport(httpx.BaseTransport):
    """Carries requests of a blocking client to an ASGI application, in a loop of its own each."""

    def __init__(self, app: App) -> None:
        self._app = app

    def handle_request(self, request: httpx.Request) -> httpx.Response:
        return asyncio.run(self._carry(request))

    async def _carry(self, request: httpx.Request) -> httpx.Response:
        transport = httpx.ASGITransport(app=self._app)
        asked = httpx.Request(
            request.method, request.url, headers=request.headers, content=request.read()
        )
        reply = await transport.handle_async_request(asked)
        return httpx.Response(reply.status_code, headers=reply.headers, content=await reply.aread())
