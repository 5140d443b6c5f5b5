"""MCP over real sockets: an application on a loopback port, and clients of the official SDK.

Clients open a new connection for every request, so that nothing depends on one; what each sent and
was answered is noted.

Spec: docs/architecture.md#tests
"""

from __future__ import annotations

import socket
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Final

import httpx2
from mcp import Client, MCPError
from mcp.client.streamable_http import streamable_http_client
from starlette.types import ASGIApp
from uvicorn.config import Config
from uvicorn.server import Server

MODES: Final = ("auto", "legacy", "2026-07-28")
_TIMEOUT_S: Final = 30.0


@asynccontextmanager
async def serving(app: ASGIApp) -> AsyncIterator[str]:
    """Serve an application in this loop; yields its base URL."""
    config = Config(app, lifespan="on", log_config=None, timeout_graceful_shutdown=5)
    config.load()
    server = Server(config)
    server.lifespan = config.lifespan_class(config)
    with socket.create_server(("127.0.0.1", 0)) as listener:
        await server.startup(sockets=[listener])
        try:
            yield f"http://127.0.0.1:{listener.getsockname()[1]}"
        finally:
            await server.shutdown(sockets=[listener])


@dataclass(slots=True)
class Talk:
    """One SDK client and the HTTP that it spoke.

    Attributes:
        client: In a session.
        requests: (method, status, media type of the reply), oldest first.
    """

    client: Client
    requests: list[tuple[str, int, str]] = field(default_factory=list)


@asynccontextmanager
async def talking(url: str, headers: Mapping[str, str], mode: str) -> AsyncIterator[Talk]:
    """An SDK client, without keep-alive.

    Args:
        url: Of the endpoint.
        headers: Sent with every request.
        mode: One of `MODES`.

    Raises:
        MCPError: The server refused it.
    """
    seen: list[tuple[str, int, str]] = []

    async def note(response: httpx2.Response) -> None:
        media_type = response.headers.get("content-type", "").partition(";")[0]
        seen.append((response.request.method, response.status_code, media_type))

    limits = httpx2.Limits(max_keepalive_connections=0)
    http = httpx2.AsyncClient(
        headers=dict(headers), limits=limits, timeout=_TIMEOUT_S, event_hooks={"response": [note]}
    )
    try:
        async with http, Client(streamable_http_client(url, http_client=http), mode=mode) as client:
            yield Talk(client, seen)
    except BaseExceptionGroup as group:
        raise _only_of(group) from group


async def refusal_of(url: str, headers: Mapping[str, str], mode: str) -> MCPError:
    """What an SDK client is told that cannot begin."""
    try:
        async with talking(url, headers, mode) as talk:
            await talk.client.list_tools()
    except MCPError as error:
        return error
    raise AssertionError("the client was served")


def _only_of(group: BaseException) -> BaseException:
    """The one exception in nested groups."""
    while isinstance(group, BaseExceptionGroup):
        (group,) = group.exceptions
    return group
