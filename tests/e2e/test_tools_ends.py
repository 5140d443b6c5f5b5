"""How episodes and calls end through real groups: errors, time-outs, clients that leave, stops.

The names of reference tests stand behind the tests: R-T26 and so on.
"""

from __future__ import annotations

import asyncio
import json
import signal
from collections.abc import AsyncIterator, Iterator
from typing import Any, Final

import httpx
import pytest

from tests.support.agents import Agents, EpisodeEndedError, Played, open_agents
from tests.support.group import Groups, RunningGroup, open_groups
from tests.support.mcp_clients import talking
from tests.support.raw import open_raw, request_bytes
from tests.support.topology import LONE, ROUTED_FOUR, Topology
from tests.support.waiting import wait_until, wait_until_async

APP: Final = "tests.support.trial_env:TrialEnvironment"
SHAPES: Final = pytest.mark.parametrize("shape", [LONE, ROUTED_FOUR], ids=lambda shape: shape.name)
VERSIONS: Final = ["2025-11-25", "2026-07-28"]
POLLS: Final = 500


@pytest.fixture(scope="module", params=[LONE, ROUTED_FOUR], ids=lambda topology: topology.name)
def group(request: pytest.FixtureRequest) -> Iterator[RunningGroup]:
    with open_groups() as groups:
        yield request.param.start(groups, APP)


@pytest.fixture
async def agents() -> AsyncIterator[Agents]:
    async with open_agents() as found:
        yield found


def error_of(reply: httpx.Response) -> tuple[int, str]:
    return reply.status_code, reply.json()["error"]["code"]


async def assert_over(group: RunningGroup, agents: Agents, played: Played) -> None:
    """Its token is gone, and its attempt can run again, whose tools the old token cannot call."""
    for _ in range(4):
        reply = await played.call("add", arguments={"n": 1})
        assert error_of(reply) == (410, "episode_not_running")
    rollout_id = played.order["episode"]["rollout_id"]
    again = await agents.begin(group.url, rollout_id)
    assert (await again.add(1))["total"] == 1
    assert error_of(await played.call("total")) == (403, "wrong_nonce")
    await again.end()


# --- episodes


async def test_an_episode_that_raises_is_over_and_cleaned(group: RunningGroup, agents: Agents):
    """R-T26."""
    played = await agents.begin(group.url, "raises", ending="raises")
    await played.add(1)
    played.is_over.set()
    assert error_of(await played.run)[0] == 500
    assert "cleaned episode=raises" in group.log()
    await assert_over(group, agents, played)


async def test_an_episode_that_times_out_is_over_and_cleaned(group: RunningGroup, agents: Agents):
    """R-T26: a call that runs then is answered as gone."""
    played = await agents.begin(group.url, "late", ending="times out")
    waiting = asyncio.create_task(played.call("wait"))
    assert error_of(await played.run)[0] == 500
    assert error_of(await waiting) == (410, "episode_not_running")
    assert "cleaned episode=late" in group.log()
    await assert_over(group, agents, played)


async def test_an_episode_whose_client_leaves_is_over_and_cleaned(
    group: RunningGroup, agents: Agents
):
    """R-T26: so is the call that runs then."""
    played = await agents.begin(group.url, "left")
    waiting = asyncio.create_task(played.call("wait"))
    await wait_until_async(lambda: "wait began episode=left" in group.log(), "the call")
    played.run.cancel()
    assert error_of(await waiting) == (410, "episode_not_running")
    await wait_until_async(lambda: "cleaned episode=left" in group.log(), "the clean-up")
    await assert_over(group, agents, played)


async def test_a_clean_up_that_hangs_holds_no_claim(group: RunningGroup, agents: Agents):
    """R-T26: its attempt runs again meanwhile."""
    played = await agents.begin(group.url, "hangs", ending="stuck clean-up")
    played.run.cancel()
    await played.wait_gone()
    await assert_over(group, agents, played)


@SHAPES
async def test_the_room_of_clean_ups_that_hang_comes_back_after_their_budget(
    groups: Groups, agents: Agents, shape: Topology
):
    """R-T26."""
    env = {"SESSIONS_CLEANUP_S": "1", "SESSIONS_MAX_EPISODES": str(shape.shards)}
    group = shape.start(groups, APP, env)
    for number in range(shape.shards):
        played = await begin_when_there_is_room(agents, group, f"stuck{number}", "stuck clean-up")
        played.run.cancel()
    again = await begin_when_there_is_room(agents, group, "stuck0")
    assert (await again.add(1))["total"] == 1
    assert "did not end in its budget" in group.log()
    assert "cleaned episode=stuck" in group.log(), "those behind the stuck one still started"
    await again.end()


async def begin_when_there_is_room(
    agents: Agents, group: RunningGroup, name: str, ending: str = ""
) -> Played:
    """Begin an episode; only that there is no room may keep it from beginning."""
    for _ in range(POLLS):
        try:
            return await agents.begin(group.url, name, ending=ending)
        except EpisodeEndedError as error:
            if not str(error).startswith("503: "):
                raise
        await asyncio.sleep(0.02)
    pytest.fail("no room")


# --- calls whose client leaves


async def wait_waits(played: Played, **expected: int) -> None:
    """Until the episode tells so many waits."""
    told: dict[str, Any] = {}
    for _ in range(POLLS):
        told = (await played.call("waits")).json()
        if told == expected:
            return
        await asyncio.sleep(0.02)
    pytest.fail(f"{told}, not {expected}")


@pytest.mark.parametrize("how", ["close", "reset"])
async def test_a_client_that_leaves_its_direct_call_cancels_the_tool(
    group: RunningGroup, agents: Agents, how: str
):
    """R-T43."""
    played = await agents.begin(group.url, f"direct-{how}")
    async with open_raw(group.address) as connection:
        await connection.send(request_bytes("POST", "/tools/wait", list(played.headers.items())))
        await wait_waits(played, began=1, cancelled=0)
        if how == "reset":
            connection.reset()
    await wait_waits(played, began=1, cancelled=1)
    assert [call["state"] for call in (await played.end())["calls"] if call["name"] == "wait"] == [
        "cancelled"
    ]


def mcp_call(played: Played, version: str) -> bytes:
    """A whole request that calls `wait`."""
    meta = {
        "io.modelcontextprotocol/protocolVersion": version,
        "io.modelcontextprotocol/clientCapabilities": {},
    }
    params = {"name": "wait", "arguments": {}, "_meta": meta}
    body = {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params}
    headers = [
        *played.order["mcp"]["headers"].items(),
        ("accept", "application/json, text/event-stream"),
        ("content-type", "application/json"),
        ("mcp-protocol-version", version),
        ("mcp-method", "tools/call"),
        ("mcp-name", "wait"),
    ]
    return request_bytes("POST", "/mcp", headers, json.dumps(body).encode())


@SHAPES
@pytest.mark.parametrize("replies", ["json", "sse"])
async def test_a_client_that_closes_its_call_over_mcp_cancels_the_tool(
    groups: Groups, agents: Agents, shape: Topology, replies: str
):
    """R-T43, in both generations, before and after a stream has begun."""
    group = shape.start(groups, APP, {"SESSIONS_MCP_REPLIES": replies})
    played = await agents.begin(group.url, "mcp")
    for number, version in enumerate(VERSIONS):
        async with open_raw(group.address) as connection:
            await connection.send(mcp_call(played, version))
            await wait_waits(played, began=number + 1, cancelled=number)
        await wait_waits(played, began=number + 1, cancelled=number + 1)
    await played.end()


@pytest.mark.parametrize("mode", ["2026-07-28", "legacy"])
async def test_an_sdk_client_that_gives_its_call_up_cancels_the_tool(
    group: RunningGroup, agents: Agents, mode: str
):
    """R-T43."""
    played = await agents.begin(group.url, f"sdk-{mode}")
    grant = played.order["mcp"]
    async with talking(grant["url"], grant["headers"], mode) as talk:
        calling = asyncio.create_task(talk.client.call_tool("wait", {}))
        await wait_waits(played, began=1, cancelled=0)
        calling.cancel()
        if mode != "legacy":  # an older client keeps its request, and says so in another one
            await wait_waits(played, began=1, cancelled=1)
    await wait_waits(played, began=1, cancelled=1)
    await played.end()


# --- a group that stops


@SHAPES
async def test_an_episode_is_played_to_its_end_while_the_group_serves_on_before_it_stops(
    groups: Groups, agents: Agents, shape: Topology
):
    """R-T34: within the drain delay, calls on new connections included."""
    group = shape.start(groups, APP, {"SESSIONS_DRAIN_DELAY_S": "60"})
    played = await agents.begin(group.url, "stops")
    await played.add(1)
    group.signal("arbiter", signal.SIGTERM)
    await asyncio.to_thread(
        wait_until, lambda: "Handling signal: term" in group.log(), "the stop began"
    )
    for total in range(2, 10):
        assert (await played.add(1))["total"] == total
    assert (await played.end())["total"] == 9
    group.signal("arbiter", signal.SIGTERM)  # nothing is left to wait for
    assert await asyncio.to_thread(group.wait_exit) == 0


@SHAPES
async def test_an_episode_that_needs_no_call_any_more_ends_with_its_result_while_the_group_stops(
    groups: Groups, agents: Agents, shape: Topology
):
    """R-T34: without a drain delay no new connection is taken, and nothing is begun anew."""
    group = shape.start(groups, APP)
    played = await agents.begin(group.url, "stops")
    await played.add(1)
    group.signal("arbiter", signal.SIGTERM)
    for _ in range(POLLS):
        try:
            reply = await played.call("total")
        except httpx.TransportError:
            break
        if reply.status_code == 200:  # it was not told yet
            assert reply.json()["total"] == 1
        else:
            assert error_of(reply) == (503, "not_ready")
        await asyncio.sleep(0.02)
    else:
        pytest.fail("the group takes new connections")
    assert (await played.end())["total"] == 1
    assert await asyncio.to_thread(group.wait_exit) == 0
