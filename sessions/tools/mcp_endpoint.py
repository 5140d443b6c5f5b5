"""MCP for the tools of episodes: stateless Streamable HTTP by the official SDK.

One request lives by itself: it names its episode by the token in its header, its tools are that
episode's, and no MCP session outlives it, so it may come over any connection and in either
generation of the protocol (2026-07-28 without `initialize`; before that, `initialize` is answered
and forgotten). What is refused (token, episode, host, method, size) is refused here, before the
SDK sees anything, as an error that the caller turns into a reply.

A client that goes away cancels its call; the SDK alone would notice that for some replies only.

Must not know processes or how requests came here.

Spec: docs/tools.md#mcp
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from importlib.metadata import version
from typing import Any, Final, Protocol

import anyio
from mcp import MCPError
from mcp.server.context import ServerRequestContext
from mcp.server.lowlevel import Server
from mcp.server.streamable_http_manager import StreamableHTTPSessionManager
from mcp_types import (
    INVALID_PARAMS,
    CallToolRequestParams,
    CallToolResult,
    ListToolsResult,
    PaginatedRequestParams,
)
from starlette.datastructures import Headers
from starlette.requests import Request
from starlette.routing import Route
from starlette.types import Receive, Scope, Send

from sessions.errors.client_visible import ClientVisibleError, RequestError
from sessions.errors.episodes import EpisodeNotRunningError, UnknownToolError
from sessions.errors.protocol import MethodNotAllowedError
from sessions.errors.seeded_sessions import ToolNotGrantedError
from sessions.errors.unseen import LocalProtocolError
from sessions.tools.mcp_client import McpClient
from sessions.tools.mcp_hosts import check_host
from sessions.tools.mcp_results import failure_of, listing_of, result_of
from sessions.tools.mcp_rules import McpRules
from sessions.tools.tool import Tool
from sessions.wire.mcp_refusals import MCP_PATH

BODY_LIMIT_BYTES: Final = 4 << 20  # the SDK's own
_JSON: Final = "application/json"
_SERVED: Final = "sessions.served_tools"
_Context = ServerRequestContext[Any, Request]


class Callables(Protocol):
    """Tools that one request may call; `ServedTools` are such."""

    @property
    def tools(self) -> Mapping[str, Tool]:
        """By name, in the order in which they are shown."""

    async def call(self, name: str, arguments: object) -> Any:  # noqa: ANN401 - JSON
        """Run one; see `ServedTools.call`."""


class ToolsOfRequest(Protocol):
    """Finds the tools that a request may call; `EpisodeRegistry` does."""

    def tools_for(self, headers: Mapping[str, str]) -> Callables:
        """The tools.

        Args:
            headers: Of the request, found by lower-case names.

        Raises:
            ClientVisibleError: The request may call none; the status says why.
        """


class McpEndpoint:
    """An ASGI application for `/mcp`; its `serving` must be entered in the lifespan."""

    def __init__(self, tools_of: ToolsOfRequest, rules: McpRules) -> None:
        """Make the endpoint.

        Args:
            tools_of: Finds the tools of a request.
            rules: What the operator decided.
        """
        self._tools_of = tools_of
        self._allowed_hosts = rules.allowed_hosts
        server: Server[Any] = Server(
            "sessile",
            version=version("sessile"),
            on_list_tools=_list_tools,
            on_call_tool=_call_tool,
        )
        self._manager = StreamableHTTPSessionManager(
            server,
            json_response=rules.has_json_replies,
            stateless=True,
            max_request_body_size=BODY_LIMIT_BYTES,
        )

    @property
    def routes(self) -> list[Route]:
        """Where it is served: with and without a slash, so that nobody is redirected."""
        return [Route(MCP_PATH, self), Route(f"{MCP_PATH}/", self)]

    @asynccontextmanager
    async def serving(self) -> AsyncIterator[None]:
        """Serve requests while the context is open; once in an endpoint's life."""
        async with self._manager.run():
            yield

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one request.

        Raises:
            ClientVisibleError: The request is refused; nothing was sent.
        """
        # The white space around a value is none of it (RFC 9110 section 5.5); uvicorn keeps some.
        values = [(name, value.strip(b" \t")) for name, value in scope["headers"]]
        scope = {**scope, "headers": values}
        served = self._admit(scope)
        client = McpClient(receive, send)
        if not await client.read_body(BODY_LIMIT_BYTES):
            return
        scope[_SERVED] = served
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(client.watch, tasks.cancel_scope)
            await self._manager.handle_request(scope, client.receive, client.send)
            tasks.cancel_scope.cancel()

    def _admit(self, scope: Scope) -> Callables:
        headers = Headers(scope=scope)
        check_host(headers, self._allowed_hosts)
        served = self._tools_of.tools_for(headers)
        if scope["method"] != "POST":
            # The SDK would open a stream on which nothing ever comes.
            raise MethodNotAllowedError("stateless MCP has POST alone", allow=("POST",))
        if not headers.get("content-type", "").lower().startswith(_JSON):
            # The SDK would say so in a plain text, which its clients do not show.
            raise RequestError(f"a request to MCP has the content-type {_JSON}")
        return served


async def _list_tools(ctx: _Context, _params: PaginatedRequestParams | None) -> ListToolsResult:
    return ListToolsResult(tools=listing_of(_served_of(ctx).tools.values()))


async def _call_tool(ctx: _Context, params: CallToolRequestParams) -> CallToolResult:
    try:
        return result_of(await _served_of(ctx).call(params.name, params.arguments))
    except UnknownToolError as error:
        raise MCPError(INVALID_PARAMS, error.message) from error
    except (EpisodeNotRunningError, ToolNotGrantedError) as error:
        raise MCPError(error.status, error.message, {"code": error.code}) from error
    except ClientVisibleError as error:
        return failure_of(error)


def _served_of(ctx: _Context) -> Callables:
    if ctx.request is None:
        raise LocalProtocolError("a call of MCP without its HTTP request")
    served: Callables = ctx.request.scope[_SERVED]
    return served
