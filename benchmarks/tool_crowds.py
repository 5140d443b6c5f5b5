"""Crowds of episodes and of seeded sessions, begun and ended as an agent does it.

Spec: docs/benchmark.md#tools
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from http import HTTPStatus
from http.cookiejar import CookieJar, DefaultCookiePolicy
from typing import Any, Final

import httpx

from benchmarks.tool_growth import CALLS, Headers
from tests.support.agents import Agents, Played, open_agents
from tests.support.group import RunningGroup

SESSION_APP: Final = "tests.support.resources_app:CounterResources"
# What has ended keeps its claim until it is forgotten; as a rule that is far later.
ENDED_SESSIONS: Final = 50
SESSION_ENV: Final = {"SESSIONS_TOMBSTONES": str(ENDED_SESSIONS)}
_FIELD: Final = "resources_session_id"
_AT_ONCE: Final = 64
_TIMEOUT_S: Final = 300.0


class EpisodeCrowd:
    """Episodes of the example environment, each held open by an agent."""

    target: Final = "/tools/add"
    kept_claims: Final = 0

    def __init__(self, group: RunningGroup, agents: Agents) -> None:
        """No episode yet; see `open_episodes`."""
        self._group = group
        self._agents = agents
        self._episodes: list[Played] = []

    async def begin(self, name: str, size: int) -> list[Headers]:
        """See `Crowd.begin`."""
        begun = [self._agents.begin(self._group.url, f"{name}-{n}") for n in range(size)]
        self._episodes = await asyncio.gather(*begun)
        return [episode.headers for episode in self._episodes]

    async def end(self, totals: Sequence[int]) -> list[bool]:
        """See `Crowd.end`; `/run` answers with the total and the calls."""
        results = await asyncio.gather(*[episode.end() for episode in self._episodes])
        return [
            (result["total"], len(result["calls"]), result["agent_status"])
            == (total, CALLS, HTTPStatus.OK)
            for result, total in zip(results, totals, strict=True)
        ]


@asynccontextmanager
async def open_episodes(group: RunningGroup) -> AsyncIterator[EpisodeCrowd]:
    """A crowd of episodes, with its agents."""
    async with open_agents() as agents:
        agents.client.timeout = httpx.Timeout(_TIMEOUT_S)
        yield EpisodeCrowd(group, agents)


class SessionCrowd:
    """Sessions that are seeded, graded and closed; each is named by its cookie.

    Every second one is given its id by the client, and is seeded and closed twice.
    """

    target: Final = "/add"

    def __init__(self, client: httpx.AsyncClient, shards: int) -> None:
        """No session yet; see `open_sessions`."""
        self.kept_claims: Final = shards * ENDED_SESSIONS
        self._client = client
        self._room = asyncio.Semaphore(_AT_ONCE)  # what waits in the client's pool costs the square
        self._ids: list[str] = []
        self._cookies: list[Headers] = []

    async def begin(self, name: str, size: int) -> list[Headers]:
        """See `Crowd.begin`."""

        async def seed(number: int) -> httpx.Response:
            body = {_FIELD: f"{name}-{number}"} if number % 2 else {}
            reply = await self._post("/seed_session", body)
            return await self._post("/seed_session", body) if number % 2 else reply

        replies = await asyncio.gather(*[seed(number) for number in range(size)])
        self._ids = [reply.json()[_FIELD] for reply in replies]
        self._cookies = [_cookie_of(reply) for reply in replies]
        return self._cookies

    async def end(self, totals: Sequence[int]) -> list[bool]:
        """See `Crowd.end`; the verdict tells the calls, the last one but it the total."""

        async def end(number: int, total: int) -> bool:
            cookie = self._cookies[number]
            told = (await self._post("/total", {}, cookie)).json()
            graded = (await self._post("/verify", {}, cookie)).json()
            body = {_FIELD: self._ids[number]}
            for _ in range(1 + number % 2):
                await self._post("/close_session", body)
            gone = await self._ask("/add", {"n": 1}, cookie)
            found = (told["total"], graded["calls"], gone.status_code)
            return found == (total, CALLS + 1, HTTPStatus.GONE)

        return await asyncio.gather(*[end(n, total) for n, total in enumerate(totals)])

    async def _post(
        self, path: str, body: Mapping[str, Any], headers: Headers | None = None
    ) -> httpx.Response:
        """A request that must work."""
        reply = await self._ask(path, body, headers)
        if reply.status_code != HTTPStatus.OK:
            raise AssertionError(f"{path}: {reply.status_code}: {reply.text}")
        return reply

    async def _ask(
        self, path: str, body: Mapping[str, Any], headers: Headers | None
    ) -> httpx.Response:
        async with self._room:
            return await self._client.post(path, headers=headers, json=body)


def _cookie_of(reply: httpx.Response) -> Headers:
    """What a seed's reply asks to be sent."""
    return {"cookie": reply.headers["set-cookie"].partition(";")[0]}


@asynccontextmanager
async def open_sessions(group: RunningGroup) -> AsyncIterator[SessionCrowd]:
    """A crowd of sessions; every request has a connection of its own."""
    limits = httpx.Limits(max_connections=None, max_keepalive_connections=0)
    forgetful = CookieJar(DefaultCookiePolicy(allowed_domains=[]))  # else all send one cookie
    async with httpx.AsyncClient(
        base_url=group.url, limits=limits, cookies=forgetful, trust_env=False, timeout=_TIMEOUT_S
    ) as client:
        shards = sum(name.startswith("shard") for name in group.pids)
        yield SessionCrowd(client, shards)
