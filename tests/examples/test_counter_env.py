"""The counter environment has the interface that it is known by."""

import asyncio
import json
from typing import Any

import httpx
import pytest
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route
from starlette.types import ASGIApp

from examples.counter_env import CounterEnvironment
from tests.support.episodes import HEADER, ORIGIN, context_of
from tests.support.mcp_clients import serving
from tests.support.rollouts import error_of, serve_state


class Agent:
    """Adds 3 and 4, asks for the total, answers with a status of its own."""

    def __init__(self, asgi: ASGIApp) -> None:
        self.orders: list[dict[str, Any]] = []
        self.asgi = asgi
        self.app = Starlette(routes=[Route("/play", self.play, methods=["POST"])])

    async def play(self, request: Request) -> Response:
        order = json.loads(await request.body())
        self.orders.append(order)
        direct = order["direct_http"]
        client = httpx.AsyncClient(
            transport=httpx.ASGITransport(self.asgi),
            base_url=direct["base_url"],
            headers=direct["headers"],
        )
        async with client:
            await client.post("/tools/add", json={"n": 3})
            added = await client.post("/tools/add", json={"n": 4})
            total = await client.post("/tools/total", json={})
        assert added.json() == total.json() == {"total": 7, "shard": 2}
        return Response(status_code=202)


async def run(body: dict[str, Any]) -> tuple[httpx.Response, Agent]:
    environment = CounterEnvironment(context_of(shard_index=2, shards=4))
    async with serve_state(environment.app()) as asgi:
        agent = Agent(asgi)
        client = httpx.AsyncClient(transport=httpx.ASGITransport(asgi), base_url=ORIGIN)
        async with client, serving(agent.app) as url:
            given = {name: value.replace("$agent", url) for name, value in body.items()}
            async with asyncio.timeout(20.0):
                return await client.post("/run", json={**given, "attempt": 1}), agent


async def test_the_agent_is_posted_the_grants_and_the_reply_tells_what_it_did():
    reply, agent = await run({"rollout_id": "r", "agent_url": "$agent/play"})
    (order,) = agent.orders
    assert order["episode"] == {"rollout_id": "r", "attempt": 1}
    assert list(order) == ["episode", "direct_http", "mcp"]
    token = order["direct_http"]["headers"][HEADER]
    assert order["direct_http"] == {"base_url": ORIGIN, "headers": {HEADER: token}}
    assert order["mcp"] == {"url": f"{ORIGIN}/mcp", "headers": {HEADER: token}}
    assert reply.status_code == 200
    result = reply.json()
    assert (result["total"], result["agent_status"]) == (7, 202)
    assert [(call["name"], call["arguments"]) for call in result["calls"]] == [
        ("add", {"n": 3}),
        ("add", {"n": 4}),
        ("total", {}),
    ]


@pytest.mark.parametrize("agent_url", ["http://127.0.0.1:1/", "nowhere", "http://[", ""])
async def test_an_agent_that_cannot_be_asked_is_no_result(agent_url: str):
    reply, _ = await run({"rollout_id": "r", "agent_url": agent_url})
    assert error_of(reply, 502)["code"] == "agent_unreachable"


async def test_an_episode_without_an_agent_is_refused():
    reply, _ = await run({"rollout_id": "r"})
    assert error_of(reply, 400)["param"] == "agent_url"
