"""Where new sessions are opened: evenly over the shards, however they come."""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections import Counter

import pytest

from sessions.routing.ids import owner_of
from tests.support.agents import open_agents
from tests.support.group import Groups, RunningGroup
from tests.support.raw import AsyncRawConnection, open_raw, request_bytes
from tests.support.topology import ROUTED_FOUR

SHARDS = 4
ENGINE = {"SESSIONS_ENGINE_URL": "sim:"}
CREATE = request_bytes("POST", "/sessions", [("Content-Type", "application/json")], b"{}")


async def open_sessions(client: AsyncRawConnection, count: int) -> list[str]:
    """Open sessions one after the other."""
    return [json.loads((await client.ask(CREATE)).body)["session_id"] for _ in range(count)]


async def close_sessions(group: RunningGroup, ids: list[str]) -> None:
    async with open_raw(group.address) as client:
        for session_id in ids:
            reply = await client.ask(request_bytes("DELETE", f"/sessions/{session_id}"))
            assert reply.status in (200, 204), reply.body


@pytest.mark.parametrize("connections", [1, 16])
async def test_new_sessions_are_spread_evenly(groups: Groups, connections: int):
    """While a board row is read, what was under way may count twice: so much they may differ."""
    group = ROUTED_FOUR.start(groups, "", ENGINE)
    count = 208 // connections
    async with contextlib.AsyncExitStack() as stack:
        clients = [
            await stack.enter_async_context(open_raw(group.address)) for _ in range(connections)
        ]
        opened = await asyncio.gather(*(open_sessions(client, count) for client in clients))
    ids = [session_id for some in opened for session_id in some]
    found = Counter(owner_of(session_id, SHARDS) for session_id in ids)
    assert sum(found.values()) == 208
    assert max(found.values()) - min(found.values()) <= connections + 1
    # Shards that were emptied are filled first, as soon as the board says so.
    emptied = [each for each in ids if owner_of(each, SHARDS) in (0, 2)]
    await close_sessions(group, emptied)
    await wait_noticed(group, {0, 2})
    async with open_raw(group.address) as client:
        refilled = await open_sessions(client, len(emptied))
    filled = Counter(owner_of(session_id, SHARDS) for session_id in refilled)
    assert filled[1] + filled[3] <= len(refilled) // 4, filled


async def wait_noticed(group: RunningGroup, emptied: set[int]) -> None:
    """Open and close sessions until only these shards get any: the router sees them empty."""
    shards: list[int] = []
    for _ in range(200):
        async with open_raw(group.address) as client:
            opened = await open_sessions(client, 1)
        await close_sessions(group, opened)
        shards.append(owner_of(opened[0], SHARDS))
        last = shards[-2 * SHARDS :]  # while only one is seen, another may come by its turn
        if set(last) == emptied and min(Counter(last).values()) > 1:
            return
        await asyncio.sleep(0.05)
    pytest.fail(f"new sessions went to {shards[-2 * SHARDS :]} after 10 s")


async def test_episodes_that_begin_at_once_are_spread_evenly(groups: Groups):
    """R-T3: while none ends, shards differ by one at most."""
    group = ROUTED_FOUR.start(groups, "examples.counter_env:CounterEnvironment")
    async with open_agents() as agents:
        episodes = await asyncio.gather(
            *(agents.begin(group.url, f"even-{number}") for number in range(202))
        )
        shards = Counter([(await episode.add(0))["shard"] for episode in episodes])
        assert sorted(shards.values()) == [50, 50, 51, 51]
        for episode in episodes:
            await episode.end()
