"""Episodes over MCP through real groups: SDK clients of both generations, refusals, a death.

The names of reference tests stand behind the tests: R-E2 and so on.
"""

from __future__ import annotations

import asyncio
import signal
from collections.abc import AsyncIterator
from dataclasses import dataclass
from typing import Final

import httpx
import pytest

from tests.support.group import ROOT, Groups, RunningGroup
from tests.support.mcp_agent import CALLS, McpAgent
from tests.support.mcp_clients import MODES, refusal_of, serving
from tests.support.waiting import wait_until_async

APP: Final = "examples.counter_env:CounterEnvironment"
EPISODES: Final = 50
UNCLAIMED: Final = ROOT / "tests" / "support" / "unclaimed_conf.py"


@dataclass(frozen=True, slots=True)
class Play:
    """A way to reach the environment's run endpoint, and the agent that it calls back."""

    http: httpx.AsyncClient
    agent: McpAgent
    agent_url: str

    async def run(self, group: RunningGroup, rollout_id: str, path: str) -> httpx.Response:
        """One episode; the reply of `POST /run`."""
        order = {"rollout_id": rollout_id, "attempt": 0, "agent_url": f"{self.agent_url}{path}"}
        return await self.http.post(f"{group.url}/run", json=order)


@pytest.fixture
async def play() -> AsyncIterator[Play]:
    agent = McpAgent()
    limits = httpx.Limits(max_keepalive_connections=0)
    async with (
        serving(agent.app()) as url,
        httpx.AsyncClient(trust_env=False, timeout=60, limits=limits) as http,
    ):
        yield Play(http, agent, url)
        agent.goes_on.set()


@pytest.mark.timeout(180)
@pytest.mark.parametrize(("shards", "replies"), [(1, "json"), (4, "json"), (4, "sse")])
async def test_each_client_of_mcp_has_its_own_episode(
    groups: Groups, play: Play, shards: int, replies: str
):
    """R-E2."""
    group = groups.start(app=APP, shards=shards, env={"SESSIONS_MCP_REPLIES": replies})
    runs = [play.run(group, f"r{n}", f"/play/{n}") for n in range(EPISODES)]
    answers = [reply.json() for reply in await asyncio.gather(*runs)]
    total = sum(range(1, CALLS + 1))
    assert [(answer["total"], answer["agent_status"]) for answer in answers] == [
        (total, 200)
    ] * EPISODES
    assert all(len(answer["calls"]) == CALLS for answer in answers)
    assert [tools for tools, _ in play.agent.seen.values()] == [["add", "total"]] * EPISODES
    used = [where for _, where in play.agent.seen.values()]
    assert all(len(where) == 1 for where in used)
    assert len(set.union(*used)) == shards
    media_type = "application/json" if replies == "json" else "text/event-stream"
    assert play.agent.media_types == {media_type}


@pytest.mark.timeout(120)
async def test_clients_of_mcp_are_refused_with_the_look_up_of_claims_switched_off(
    groups: Groups, play: Play
):
    """R-E6."""
    group = groups.start(app=APP, shards=4, conf=UNCLAIMED)
    runs = [play.run(group, f"r{n}", f"/play/{n}") for n in range(20)]
    failed = [reply.json()["agent_status"] != 200 for reply in await asyncio.gather(*runs)]
    print(f"with claims off: {sum(failed)} of {len(failed)} episodes over MCP failed")  # noqa: T201 - figures for -rP
    assert sum(failed) > len(failed) / 2


@pytest.mark.timeout(120)
@pytest.mark.parametrize("shards", [1, 2])
async def test_a_refusal_is_the_same_wherever_it_is_made(groups: Groups, play: Play, shards: int):
    """R-T19, R-T22."""
    group = groups.start(app=APP, shards=shards)
    running = asyncio.create_task(play.run(group, "held", "/hold"))
    await wait_until_async(lambda: "held" in play.agent.orders, "the episode")
    grant = play.agent.orders["held"]["mcp"]
    (name,) = grant["headers"]
    token = grant["headers"][name]
    for mode in MODES:
        for headers, status in (({}, 401), ({name: token[:-1]}, 401)):
            assert (await refusal_of(grant["url"], headers, mode)).code == status
    play.agent.goes_on.set()
    assert (await running).json()["total"] == 0
    for mode in MODES:
        error = await refusal_of(grant["url"], grant["headers"], mode)
        assert (error.code, "not running on this server" in error.message) == (410, True)
    plain = await play.http.post(grant["url"], headers=grant["headers"])
    assert (plain.status_code, plain.json()["error"]["code"]) == (410, 410)


@pytest.mark.timeout(120)
async def test_an_episode_whose_shard_died_is_gone_for_clients_of_mcp(groups: Groups, play: Play):
    """R-E3."""
    group = groups.start(app=APP, shards=2)
    names = ["a", "b"]
    running = {name: asyncio.create_task(play.run(group, name, "/hold")) for name in names}
    await wait_until_async(lambda: len(play.agent.orders) == len(names), "the episodes")
    group.signal("shard 0", signal.SIGKILL)
    (died,) = (await asyncio.wait(running.values(), return_when=asyncio.FIRST_COMPLETED))[0]
    (gone,) = [name for name in names if running[name] is died]
    grant = play.agent.orders[gone]["mcp"]
    plain = await play.http.post(grant["url"], headers=grant["headers"])
    assert plain.status_code == 410
    assert "no longer running" in plain.json()["detail"]
    for mode in MODES:
        error = await refusal_of(grant["url"], grant["headers"], mode)
        assert (error.code, error.message) == (410, plain.json()["detail"])
    play.agent.goes_on.set()
    (other,) = [name for name in names if name != gone]
    assert (await running[other]).status_code == 200


async def test_hosts_are_checked_when_the_operator_names_them(groups: Groups, play: Play):
    group = groups.start(app=APP, env={"SESSIONS_MCP_ALLOWED_HOSTS": "tools.example"})
    assert (await play.http.post(f"{group.url}/mcp")).status_code == 421
    named = {"host": "tools.example"}
    assert (await play.http.post(f"{group.url}/mcp", headers=named)).status_code == 401
