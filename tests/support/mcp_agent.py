"""An agent that plays episodes over MCP with the official SDK's client.

A tool environment posts it an episode with its grants; it lists the tools, adds, and answers with
what it saw. `held` episodes begin and then wait, so that a test can act in their middle.

Spec: docs/architecture.md#tests
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from typing import Any

from mcp import MCPError
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse
from starlette.routing import Route

from tests.support.mcp_clients import MODES, talking

CALLS = 4


@dataclass(slots=True)
class McpAgent:
    """See the module docstring.

    Attributes:
        seen: By rollout id: tools that were listed, and the shards that answered calls.
        media_types: Of the replies to calls of the older generation.
        orders: By rollout id: what the environment posted.
        goes_on: Held episodes wait for it.
    """

    seen: dict[str, tuple[list[str], set[int]]] = field(default_factory=dict)
    media_types: set[str] = field(default_factory=set)
    orders: dict[str, dict[str, Any]] = field(default_factory=dict)
    goes_on: asyncio.Event = field(default_factory=asyncio.Event)

    def app(self) -> Starlette:
        """The application that environments post to: `/play/<n>`, and `/hold`."""
        return Starlette(
            routes=[
                Route("/play/{number:int}", self._play, methods=["POST"]),
                Route("/hold", self._hold, methods=["POST"]),
            ]
        )

    async def _play(self, request: Request) -> JSONResponse:
        order = await request.json()
        grant = order["mcp"]
        mode = MODES[request.path_params["number"] % len(MODES)]
        try:
            await self._play_over(grant, order["episode"]["rollout_id"], mode)
        except MCPError as error:
            return JSONResponse({"error": error.message}, status_code=500)
        return JSONResponse({})

    async def _play_over(self, grant: dict[str, Any], rollout_id: str, mode: str) -> None:
        shards = set()
        async with talking(grant["url"], grant["headers"], mode) as talk:
            tools = [tool.name for tool in (await talk.client.list_tools()).tools]
            for n in range(1, CALLS + 1):
                result = await talk.client.call_tool("add", {"n": n})
                assert result.structured_content is not None
                shards.add(result.structured_content["shard"])
            if mode == "legacy":
                self.media_types.add(talk.requests[-1][2])
        self.seen[rollout_id] = (tools, shards)

    async def _hold(self, request: Request) -> JSONResponse:
        order = await request.json()
        self.orders[order["episode"]["rollout_id"]] = order
        await self.goes_on.wait()
        return JSONResponse({})
