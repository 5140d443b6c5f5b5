"""An application whose lifespan ends by itself when it is asked to: `POST /end`.

Spec: docs/architecture.md#tests
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route
from starlette.types import ASGIApp, Receive, Scope, Send


def mortal() -> ASGIApp:
    """Make the application."""
    end = asyncio.Event()

    async def order(_request: Request) -> Response:
        end.set()
        return Response("ending")

    @asynccontextmanager
    async def lifespan(_app: Starlette) -> AsyncIterator[None]:
        yield

    inner = Starlette(routes=[Route("/end", order, methods=["POST"])], lifespan=lifespan)

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "lifespan":
            await inner(scope, receive, send)
            return
        living = asyncio.create_task(inner(scope, receive, send))
        await end.wait()
        living.cancel()

    return app
