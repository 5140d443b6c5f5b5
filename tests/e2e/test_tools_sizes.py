"""Episode tools in numbers: many episodes at once, many one after another, the first call at once.

The names of reference tests stand behind the tests: R-T6 and so on.
"""

from __future__ import annotations

import asyncio
import re
from collections import Counter
from collections.abc import AsyncIterator
from typing import Final

import httpx
import pytest

from examples.warehouse_agent import Agent, Call
from tests.support.agents import Agents, open_agents
from tests.support.group import Groups, RunningGroup
from tests.support.mcp_clients import serving
from tests.support.topology import LONE, ROUTED_FOUR, Topology

APP: Final = "examples.counter_env:CounterEnvironment"
AT_ONCE: Final = 32


@pytest.fixture
async def agents() -> AsyncIterator[Agents]:
    async with open_agents() as found:
        yield found


async def wait_sum(agents: Agents, group: RunningGroup, name: str, expected: int) -> None:
    """Wait until a metric, summed over the shards, is so; what is told is up to a second old."""
    found = []
    for _ in range(200):
        page = (await agents.client.get(f"{group.url}/metrics")).text
        found = [int(text) for text in re.findall(rf"^{name}(?:{{.*}})? (\d+)", page, re.MULTILINE)]
        if found and sum(found) == expected:
            return
        await asyncio.sleep(0.05)
    pytest.fail(f"{name} is {found} after 10 s, not {expected} together")


@pytest.mark.timeout(180)
@pytest.mark.parametrize(
    ("shape", "count"), [(LONE, 200), (ROUTED_FOUR, 1000)], ids=["lone", "router+4"]
)
async def test_the_first_call_of_an_agent_is_served_without_any_delay(
    groups: Groups, agents: Agents, shape: Topology, count: int
):
    """R-T6; R-T19 and R-T27 with as many episodes."""
    group = shape.start(groups, APP)
    first = await agents.begin(group.url, "first")
    await first.end()
    shards: Counter[int] = Counter()
    room = asyncio.Semaphore(AT_ONCE)

    async def call_at_once(call: Call) -> None:
        shards[(await call("add", n=1))["shard"]] += 1

    async def run(number: int, agent_url: str) -> tuple[int, int, int]:
        async with room:
            body = {"rollout_id": f"r{number}", "agent_url": agent_url}
            reply = await agents.client.post(f"{group.url}/run", json=body)
        result = reply.json()
        return reply.status_code, result.get("agent_status", 0), result.get("total", 0)

    async with serving(Agent(kept=0, play=call_at_once).app()) as url:
        results = await asyncio.gather(*(run(number, f"{url}/") for number in range(count)))
    assert Counter(results) == {(200, 204, 1): count}
    assert (len(shards), shards.total()) == (shape.shards, count)
    for _ in range(2 * shape.shards):
        reply = await first.call("add", arguments={"n": 1})
        assert (reply.status_code, reply.json()["error"]["code"]) == (410, "episode_not_running")
    if shape.shards > 1:
        await wait_sum(agents, group, "sessile_claims", 0)


@pytest.mark.timeout(180)
@pytest.mark.parametrize(("episode_count", "call_count"), [(200, 8), (400, 4)])
async def test_every_call_of_many_episodes_at_once_is_served_by_its_own(
    groups: Groups, agents: Agents, episode_count: int, call_count: int
):
    """R-E1 with 200 episodes of 8 calls, and the episodes of R-E4; all on new connections.

    R-T9: the shards together answered each request once.
    """
    group = ROUTED_FOUR.start(groups, APP)
    begun = [agents.begin(group.url, f"r{number}") for number in range(episode_count)]
    episodes = await asyncio.gather(*begun)
    statuses: Counter[int] = Counter()
    shards: list[set[int]] = [set() for _ in episodes]
    room = asyncio.Semaphore(AT_ONCE)

    async def add(number: int, expected: int) -> None:
        async with room:
            reply: httpx.Response = await episodes[number].call("add", arguments={"n": number})
        statuses[reply.status_code] += 1
        assert reply.json()["total"] == expected
        shards[number].add(reply.json()["shard"])

    for turn in range(1, call_count + 1):
        await asyncio.gather(*(add(number, number * turn) for number in range(episode_count)))
    assert statuses == {200: episode_count * call_count}
    assert {len(used) for used in shards} == {1}
    assert set.union(*shards) == set(range(4))
    results = await asyncio.gather(*(episode.end() for episode in episodes))
    assert [result["total"] for result in results] == [
        number * call_count for number in range(episode_count)
    ]
    assert {len(result["calls"]) for result in results} == {call_count}
    answered = episode_count * (call_count + 1)
    await wait_sum(agents, group, "sessile_requests_total", answered)
