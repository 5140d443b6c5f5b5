"""A scripted agent for the warehouse: it plays episodes and prints their rewards.

It is both sides of the outside world. As the trainer it asks the server for episodes (`POST /run`);
as the agent it is a small HTTP server of its own that is posted each episode's grants, plays by
calling the tools that they allow, and answers. Calls go over plain HTTP or over MCP, and over
connections that are kept or not; it makes no difference.

    python examples/warehouse_agent.py                          # ten episodes over HTTP
    python examples/warehouse_agent.py --over mcp --new-connections

Put a model in the place of `ship_all`: it is given nothing but `call(name, **arguments)`.

Spec: docs/tools.md#an-example-with-a-reward
"""

from __future__ import annotations

import argparse
import asyncio
import socket
import ssl
import sys
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from functools import cache
from typing import Any, Final, Protocol

import httpx
import httpx2
import uvicorn
from mcp import Client
from mcp.client.streamable_http import streamable_http_client
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

TIMEOUT_S: Final = 60.0


class ToolRefusedError(Exception):
    """A tool could not do what was asked; the message is for whoever plays."""


class EpisodeFailedError(Exception):
    """The server answered an episode with an error; the message has its words."""


class Call(Protocol):
    """Calls a tool of one episode."""

    async def __call__(self, name: str, **arguments: object) -> dict[str, Any]:
        """Call it.

        Raises:
            ToolRefusedError: It could not do it.
        """


# --- the play


async def ship_all(call: Call) -> None:
    """Bring to each order's place what is missing there, then ship it."""
    for order in (await call("list_orders"))["orders"]:
        item, place = order["item"], order["place"]
        stock = (await call("find", item=item))["stock"]
        missing = order["count"] - stock.pop(place)
        for source, there in stock.items():
            count = min(missing, there)
            if count > 0:
                await call("move", item=item, count=count, source=source, target=place)
                missing -= count
        await call("ship", order=order["number"])


# --- two ways to call a tool; `kept` is how many connections may be kept between calls


@cache
def tls() -> ssl.SSLContext:
    """What an https server is checked with; made once, for it takes 20 ms."""
    return ssl.create_default_context()


@asynccontextmanager
async def over_http(order: Mapping[str, Any], kept: int | None) -> AsyncIterator[Call]:
    """Call the tools of an order by plain HTTP."""
    grant = order["direct_http"]
    limits = httpx.Limits(max_keepalive_connections=kept)
    async with httpx.AsyncClient(
        headers=grant["headers"], limits=limits, timeout=TIMEOUT_S, verify=tls()
    ) as http:

        async def call(name: str, **arguments: object) -> dict[str, Any]:
            reply = await http.post(f"{grant['base_url']}/tools/{name}", json=arguments)
            if reply.status_code == httpx.codes.UNPROCESSABLE_ENTITY:
                raise ToolRefusedError(reply.json()["error"]["message"])
            reply.raise_for_status()
            found: dict[str, Any] = reply.json()
            return found

        yield call


@asynccontextmanager
async def over_mcp(order: Mapping[str, Any], kept: int | None) -> AsyncIterator[Call]:
    """Call the tools of an order by the client of the official MCP SDK."""
    grant = order["mcp"]
    limits = httpx2.Limits(max_keepalive_connections=kept)
    async with (
        httpx2.AsyncClient(
            headers=grant["headers"], limits=limits, timeout=TIMEOUT_S, verify=tls()
        ) as http,
        Client(streamable_http_client(grant["url"], http_client=http)) as client,
    ):

        async def call(name: str, **arguments: object) -> dict[str, Any]:
            result = await client.call_tool(name, arguments)
            if result.is_error:
                texts = [block.text for block in result.content if block.type == "text"]
                raise ToolRefusedError(" ".join(texts))
            return result.structured_content or {}

        yield call


TRANSPORTS: Final = {"http": over_http, "mcp": over_mcp}


# --- the agent, and the trainer that gives it work


@dataclass(frozen=True, slots=True, kw_only=True)
class Agent:
    """Plays every episode that it is posted.

    Attributes:
        over: How it calls tools, one of `TRANSPORTS`.
        kept: How many connections it may keep between calls; None is any number.
        play: What it does with the tools.
    """

    over: str = "http"
    kept: int | None = None
    play: Callable[[Call], Awaitable[None]] = ship_all

    def app(self) -> Starlette:
        """Its application: `POST /` is an episode, answered when it was played."""
        return Starlette(routes=[Route("/", self._answer, methods=["POST"])])

    async def _answer(self, request: Request) -> Response:
        async with TRANSPORTS[self.over](await request.json(), self.kept) as call:
            await self.play(call)
        return Response(status_code=204)


async def run_episodes(
    url: str, agent_url: str, name: str, count: int, at_once: int
) -> list[dict[str, Any]]:
    """Ask the server for episodes, so many at a time, and print how each went.

    Args:
        url: Of the server.
        agent_url: Where the server reaches the agent.
        name: Of the rollouts; a number follows.
        count: Of episodes; the number of each is its seed.
        at_once: How many at a time.

    Returns:
        What the server answered for each.

    Raises:
        EpisodeFailedError: One of them failed.
        httpx.HTTPError: The server did not answer.
    """
    room = asyncio.Semaphore(at_once)

    async def run_one(seed: int) -> dict[str, Any]:
        rollout_id = f"{name}-{seed}"
        body = {"rollout_id": rollout_id, "seed": seed, "agent_url": agent_url}
        async with room:
            reply = await http.post(f"{url}/run", json=body)
        if reply.is_error:
            raise EpisodeFailedError(f"{rollout_id}: {reply.text}")
        found: dict[str, Any] = reply.json()
        print(
            f"{rollout_id}: reward {found['reward']:.2f}, {len(found['calls'])} calls,"
            f" shard {found['shard']}"
        )
        return found

    async with httpx.AsyncClient(timeout=None) as http:  # noqa: S113 - an episode may take long
        return await asyncio.gather(*(run_one(seed) for seed in range(count)))


async def play_all(args: argparse.Namespace) -> None:
    """Serve the agent, and run episodes that it plays; print the mean reward."""
    listener = socket.create_server((args.host, 0))
    agent_url = f"http://{args.host}:{listener.getsockname()[1]}/"
    agent = Agent(over=args.over, kept=0 if args.new_connections else None)
    server = uvicorn.Server(uvicorn.Config(agent.app(), log_level="warning"))
    serving = asyncio.create_task(server.serve(sockets=[listener]))
    try:
        found = await run_episodes(args.url, agent_url, args.name, args.episodes, args.at_once)
    finally:
        server.should_exit = True
        await serving
    rewards = [episode["reward"] for episode in found]
    shards = {episode["shard"] for episode in found}
    print(
        f"{len(rewards)} episodes over {args.over} on {len(shards)} shards:"
        f" mean reward {sum(rewards) / len(rewards):.3f}"
    )


def main(argv: Sequence[str] | None = None) -> int:
    """Play; see the module docstring.

    Returns:
        0, or 1 if an episode failed.
    """
    parser = argparse.ArgumentParser(description="Plays the warehouse, prints rewards.")
    parser.add_argument("url", nargs="?", default="http://127.0.0.1:8000", help="of the server")
    parser.add_argument("--over", choices=sorted(TRANSPORTS), default="http")
    parser.add_argument("--new-connections", action="store_true", help="one for each call")
    parser.add_argument("--episodes", type=int, default=10)
    parser.add_argument("--at-once", type=int, default=8)
    parser.add_argument("--name", default="warehouse", help="of the rollouts")
    parser.add_argument("--host", default="127.0.0.1", help="where the server reaches this agent")
    try:
        asyncio.run(play_all(parser.parse_args(argv)))
    except (EpisodeFailedError, httpx.HTTPError) as error:
        print(error, file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
