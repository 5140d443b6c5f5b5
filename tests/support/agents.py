"""Agents for real groups: a server that is posted grants, and episodes that a test plays.

`open_agents` serves the address that `POST /run` gets as `agent_url`. `Agents.begin` starts an
episode and returns when its grants came; its agent then waits until the test ends the episode.

Spec: docs/architecture.md#tests
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from http import HTTPStatus
from typing import Any, Final

import httpx
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse
from starlette.routing import Route

from tests.support.mcp_clients import serving
from tests.support.waiting import DeadlineError

TIMEOUT_S: Final = 40.0
GONE_S: Final = 10.0
Key = tuple[str, int]


class EpisodeEndedError(AssertionError):
    """The episode ended before its grants came; the message is what `/run` answered."""


@dataclass(kw_only=True)
class Played:
    """An episode that runs.

    Attributes:
        order: What its agent was posted.
        is_over: Lets the agent answer.
        run: The request that runs it.
    """

    order: dict[str, Any]
    client: httpx.AsyncClient
    is_over: asyncio.Event
    run: asyncio.Task[httpx.Response]

    @property
    def headers(self) -> dict[str, str]:
        """Of its direct grant."""
        found: dict[str, str] = self.order["direct_http"]["headers"]
        return found

    async def call(
        self,
        name: str,
        *,
        headers: Mapping[str, str] | None = None,
        arguments: object = None,
    ) -> httpx.Response:
        """A direct call on a new connection; with the grant's headers unless others are given."""
        url = f"{self.order['direct_http']['base_url']}/tools/{name}"
        given = self.headers if headers is None else headers
        return await self.client.post(url, headers=dict(given), json=arguments or {})

    async def add(self, n: int) -> dict[str, int]:
        """Call `add`, which must work."""
        reply = await self.call("add", arguments={"n": n})
        assert reply.status_code == 200, reply.text
        found: dict[str, int] = reply.json()
        return found

    async def wait_gone(self) -> None:
        """Call until the episode is answered as gone.

        Raises:
            DeadlineError: It was not in time.
        """
        end = time.monotonic() + GONE_S
        while (await self.call("total")).status_code != HTTPStatus.GONE:
            if time.monotonic() >= end:
                raise DeadlineError("the episode is not gone")

    async def end(self) -> dict[str, Any]:
        """Let the agent answer; what `/run` answered then, which must be a 200."""
        self.is_over.set()
        reply = await self.run
        assert reply.status_code == 200, reply.text
        found: dict[str, Any] = reply.json()
        return found


@dataclass(kw_only=True)
class Agents:
    """See the module docstring.

    Attributes:
        url: Where agents are.
        client: Opens a new connection for each request.
    """

    client: httpx.AsyncClient
    url: str = ""
    orders: dict[Key, asyncio.Future[dict[str, Any]]] = field(default_factory=dict)
    ends: dict[Key, asyncio.Event] = field(default_factory=dict)

    async def answer(self, request: Request) -> JSONResponse:
        """Play one episode as the test says."""
        order = await request.json()
        key = (order["episode"]["rollout_id"], order["episode"]["attempt"])
        if not self.orders[key].done():
            self.orders[key].set_result(order)
        await self.ends[key].wait()
        return JSONResponse({})

    async def run(
        self, base_url: str, rollout_id: str, attempt: int = 0, **more: object
    ) -> httpx.Response:
        """`POST /run`, with the agents' address and more members of the body."""
        body = {"rollout_id": rollout_id, "attempt": attempt, "agent_url": self.url, **more}
        return await self.client.post(f"{base_url}/run", json=body)

    def expect(
        self, rollout_id: str, attempt: int = 0
    ) -> tuple[asyncio.Future[dict[str, Any]], asyncio.Event]:
        """Know an episode that will come: its order to be, and what lets its agent answer."""
        key = (rollout_id, attempt)
        if key in self.ends:
            self.ends[key].set()  # the agent of an episode that is over
        self.orders[key] = asyncio.get_running_loop().create_future()
        self.ends[key] = asyncio.Event()
        return self.orders[key], self.ends[key]

    async def begin(
        self, base_url: str, rollout_id: str, attempt: int = 0, **more: object
    ) -> Played:
        """Run an episode until its agent has the grants; arguments as for `run`.

        Raises:
            EpisodeEndedError: It ended before.
        """
        order, is_over = self.expect(rollout_id, attempt)
        run = asyncio.create_task(self.run(base_url, rollout_id, attempt, **more))
        await asyncio.wait((order, run), return_when=asyncio.FIRST_COMPLETED)
        if not order.done():
            reply = await run
            raise EpisodeEndedError(f"{reply.status_code}: {reply.text}")
        return Played(order=order.result(), client=self.client, is_over=is_over, run=run)


@asynccontextmanager
async def open_agents() -> AsyncIterator[Agents]:
    """Serve agents on a loopback port."""
    limits = httpx.Limits(max_connections=None, max_keepalive_connections=0)
    client = httpx.AsyncClient(limits=limits, trust_env=False, verify=False, timeout=TIMEOUT_S)
    agents = Agents(client=client)
    app = Starlette(routes=[Route("/", agents.answer, methods=["POST"])])
    async with client, serving(app) as url:
        agents.url = url + "/"
        try:
            yield agents
        finally:
            for is_over in agents.ends.values():
                is_over.set()
