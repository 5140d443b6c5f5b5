"""Tokens of another run of an episode through real groups: who refuses them, and what it costs.

The names of reference tests stand behind the tests: R-T18 and so on.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import AsyncIterator, Iterator
from typing import Final

import pytest

from tests.support.agents import Agents, Played, open_agents
from tests.support.group import Groups, RunningGroup, open_groups
from tests.support.raw import open_raw, request_bytes
from tests.support.topology import LONE, ROUTED_FOUR
from tests.support.waiting import wait_until_async

APP: Final = "examples.counter_env:CounterEnvironment"
REPEATS: Final = 1000
SHARDS: Final = ROUTED_FOUR.shards


@pytest.fixture(scope="module", params=[LONE, ROUTED_FOUR], ids=lambda topology: topology.name)
def group(request: pytest.FixtureRequest) -> Iterator[RunningGroup]:
    with open_groups() as groups:
        yield request.param.start(groups, APP)


@pytest.fixture
async def agents() -> AsyncIterator[Agents]:
    async with open_agents() as found:
        yield found


async def begin_twice(group: RunningGroup, agents: Agents, name: str) -> tuple[Played, Played]:
    """An episode that ended, and the same attempt again, which runs."""
    first = await agents.begin(group.url, name)
    await first.end()
    return first, await agents.begin(group.url, name)


def request_of(played: Played, name: str) -> bytes:
    return request_bytes("POST", f"/tools/{name}", list(played.headers.items()), b'{"n":1}')


def descriptors_of(group: RunningGroup) -> dict[str, int]:
    return {name: len(os.listdir(f"/proc/{pid}/fd")) for name, pid in group.pids.items()}


async def test_a_wrong_nonce_is_refused_a_thousand_times_and_nothing_is_left(
    group: RunningGroup, agents: Agents
):
    """R-T18: over one connection, then each over its own."""
    first, second = await begin_twice(group, agents, "t18")
    statuses: Counter[int] = Counter()
    before = descriptors_of(group)
    async with open_raw(group.address) as connection:
        for _ in range(REPEATS):
            reply = await connection.ask(request_of(first, "add"))
            statuses[reply.status] += 1
    for _ in range(REPEATS // 5):
        async with open_raw(group.address) as connection:
            statuses[(await connection.ask(request_of(first, "add"))).status] += 1
    assert statuses == {403: REPEATS + REPEATS // 5}
    await wait_until_async(lambda: descriptors_of(group) == before, "the descriptors")
    assert (await second.add(5))["total"] == 5
    assert len((await second.end())["calls"]) == 1


async def test_only_the_shard_of_an_episode_knows_its_nonce(groups: Groups, agents: Agents):
    """R-T18, R-T20: asked past the router, its shard refuses, and the others know no episode."""
    group = ROUTED_FOUR.start(groups, APP)
    first, second = await begin_twice(group, agents, "t20")
    owner = (await second.add(1))["shard"]
    for played, status in ((first, 403), (second, 422)):  # `total` takes no n
        statuses = []
        for shard in range(SHARDS):
            async with open_raw(str(group.runtime_dir / f"shard-{shard}.sock")) as connection:
                statuses.append((await connection.ask(request_of(played, "total"))).status)
        assert statuses == [status if shard == owner else 410 for shard in range(SHARDS)]
    await second.end()
