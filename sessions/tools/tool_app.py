"""The application of an environment, put together: its own routes and MCP.

Spec: docs/tools.md#routes
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.routing import Route

from sessions.tools.http_json import Answered, answer_http_exception
from sessions.tools.mcp_endpoint import McpEndpoint, ToolsOfRequest
from sessions.tools.mcp_rules import McpRules


def tool_app(
    routes: Sequence[Route],
    tools_of: ToolsOfRequest,
    life: Callable[[Starlette], AbstractAsyncContextManager[None]],
    mcp_rules: McpRules,
    outer: Sequence[Middleware] = (),
) -> Starlette:
    """Put an application together.

    Args:
        routes: Of the environment, in the order in which they are tried.
        tools_of: Finds the tools of a request for MCP.
        life: The lifespan of the environment.
        mcp_rules: What the operator decided about MCP.
        outer: Sees all replies, those to failed requests too.
    """
    mcp = McpEndpoint(tools_of, mcp_rules)

    @asynccontextmanager
    async def serving(app: Starlette) -> AsyncIterator[None]:
        async with mcp.serving(), life(app):
            yield

    app = Starlette(
        routes=[*mcp.routes, *routes],
        middleware=[*outer, Middleware(Answered)],
        exception_handlers={HTTPException: answer_http_exception},
        lifespan=serving,
    )
    app.router.redirect_slashes = False  # a redirect loses what it was sent with
    return app
