"""The application of a tool environment, put together: the run endpoint and the transports.

Spec: docs/tools.md#routes
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from sessions.tools.direct_http import direct_route
from sessions.tools.episode_registry import EpisodeRegistry
from sessions.tools.http_json import Answered, answer_http_exception
from sessions.tools.mcp_endpoint import McpEndpoint
from sessions.tools.mcp_rules import McpRules

RUN_PATH = "/run"


def tool_app(
    run: Callable[[Request], Awaitable[Response]],
    registry: EpisodeRegistry,
    life: Callable[[Starlette], AbstractAsyncContextManager[None]],
    mcp_rules: McpRules,
) -> Starlette:
    """Put an application together.

    Args:
        run: Answers `POST /run`.
        registry: Finds the episode of a call.
        life: The lifespan of the environment.
        mcp_rules: What the operator decided about MCP.
    """
    mcp = McpEndpoint(registry, mcp_rules)

    @asynccontextmanager
    async def serving(app: Starlette) -> AsyncIterator[None]:
        async with mcp.serving(), life(app):
            yield

    app = Starlette(
        routes=[Route(RUN_PATH, run, methods=["POST"]), direct_route(registry), *mcp.routes],
        middleware=[Middleware(Answered)],
        exception_handlers={HTTPException: answer_http_exception},
        lifespan=serving,
    )
    app.router.redirect_slashes = False  # a redirect loses what it was sent with
    return app
