"""Episodes whose shard dies, and what calls would do without claims."""

from __future__ import annotations

import asyncio
import signal
from collections import Counter
from collections.abc import AsyncIterator
from pathlib import Path

import httpx
import pytest

from tests.support.agents import Agents, Played, open_agents
from tests.support.group import Groups

APP = "examples.counter_env:CounterEnvironment"
SHARDS = 4
UNCLAIMED = Path(__file__).parent.parent / "support" / "unclaimed_conf.py"


@pytest.fixture
async def agents() -> AsyncIterator[Agents]:
    async with open_agents() as found:
        yield found


def told(reply: httpx.Response) -> tuple[int, str]:
    return reply.status_code, reply.json()["error"]["code"]


async def test_a_dead_shards_episodes_are_gone_and_all_others_go_on(groups: Groups, agents: Agents):
    """R-T29, R-T31, R-T33, a small R-E3."""
    group = groups.start(shards=SHARDS, app=APP)
    episodes = await asyncio.gather(*[agents.begin(group.url, f"r{n}") for n in range(16)])
    shards = [(await episode.add(1))["shard"] for episode in episodes]
    dead = shards[0]
    group.signal(f"shard {dead}", signal.SIGKILL)
    lost = [episode for episode, shard in zip(episodes, shards, strict=True) if shard == dead]
    kept = [episode for episode, shard in zip(episodes, shards, strict=True) if shard != dead]
    assert {told(await episode.run) for episode in lost} == {(502, "shard_died")}
    for episode in lost:
        for _ in range(4):
            reply = await episode.call("add", arguments={"n": 1})
            assert told(reply) == (410, "shard_gone")
            assert "no longer running" in reply.json()["error"]["message"]
    for episode in kept:
        assert (await episode.add(1))["total"] == 2
    again = await agents.begin(group.url, "r0")
    assert (await again.add(1))["total"] == 1
    assert told(await lost[0].call("total")) == (403, "wrong_nonce")
    fresh = await asyncio.gather(*[agents.begin(group.url, f"new{n}") for n in range(8)])
    assert dead not in [(await episode.add(1))["shard"] for episode in fresh]
    ended = await asyncio.gather(*[episode.end() for episode in [*kept, again, *fresh]])
    assert [result["agent_status"] for result in ended] == [200] * len(ended)


async def test_without_claims_calls_miss_their_episode(groups: Groups, agents: Agents):
    """R-E6: the tests of episodes would not pass with the look-up of claims switched off."""
    group = groups.start(shards=SHARDS, app=APP, conf=UNCLAIMED)
    statuses: Counter[int] = Counter()

    async def play(episode: Played) -> None:
        for _ in range(8):
            statuses[(await episode.call("add", arguments={"n": 1})).status_code] += 1
        await episode.end()

    episodes = await asyncio.gather(*[agents.begin(group.url, f"r{n}") for n in range(16)])
    await asyncio.gather(*[play(episode) for episode in episodes])
    print(f"with the look-up of claims off: {dict(statuses)} of {16 * 8} calls")  # noqa: T201
    assert set(statuses) == {200, 410}
    assert statuses[410] > 16 * 8 // 2
