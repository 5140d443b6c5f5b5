"""Episode tools when something is slow, huge, frozen or dead: only its own callers notice.

The names of reference tests stand behind the tests: R-T32 and so on.
"""

from __future__ import annotations

import asyncio
import json
import re
import signal
from collections import Counter
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Final

import httpx
import pytest
from mcp import MCPError

from tests.support.agents import Agents, Played, open_agents
from tests.support.group import Groups, RunningGroup
from tests.support.mcp_clients import talking
from tests.support.raw import open_raw, request_bytes
from tests.support.topology import LONE, ROUTED_FOUR, Topology
from tests.support.waiting import wait_until_async

APP: Final = "tests.support.trial_env:TrialEnvironment"
SHARDS: Final = 4
EPISODES: Final = 12
BLOB_BYTES: Final = 64 << 20
SHAPES: Final = pytest.mark.parametrize("shape", [LONE, ROUTED_FOUR], ids=lambda shape: shape.name)


@pytest.fixture
async def agents() -> AsyncIterator[Agents]:
    async with open_agents() as found:
        yield found


async def begin_many(agents: Agents, group: RunningGroup) -> tuple[list[Played], list[int]]:
    """Episodes that each counted 1, and their shards."""
    begun = [agents.begin(group.url, f"e{number}") for number in range(EPISODES)]
    episodes = await asyncio.gather(*begun)
    return episodes, [(await episode.add(1))["shard"] for episode in episodes]


def told(reply: httpx.Response) -> tuple[int, str]:
    return reply.status_code, reply.json()["error"]["code"]


@SHAPES
async def test_a_huge_reply_that_nobody_reads_and_slow_calls_hold_up_no_other_call(
    groups: Groups, agents: Agents, shape: Topology
):
    """R-T42."""
    group = shape.start(groups, APP)
    episodes, _ = await begin_many(agents, group)
    slow = [asyncio.create_task(episode.call("wait")) for episode in episodes]
    headers = list(episodes[0].headers.items())
    asked = request_bytes("POST", "/tools/blob", headers, b'{"size_bytes":%d}' % BLOB_BYTES)
    async with open_raw(group.address, receive_buffer_bytes=4096) as reader:
        await reader.send(asked)
        while not reader.parser.leftover:
            await reader._read()
        for total in range(2, 12):
            replies = await asyncio.gather(*(episode.add(1) for episode in episodes))
            assert [reply["total"] for reply in replies] == [total] * EPISODES
        assert len(reader.parser.leftover) < BLOB_BYTES / 2, "the reply is still on its way"
    async with open_raw(group.address) as reader:
        assert json.loads((await reader.ask(asked)).body) == "b" * BLOB_BYTES
    assert not any(task.done() for task in slow)
    await asyncio.gather(*(episode.end() for episode in episodes))
    assert {told(await task) for task in slow} == {(410, "episode_not_running")}


async def test_a_frozen_shard_holds_up_its_own_episodes_alone_and_loses_nothing(
    groups: Groups, agents: Agents
):
    """R-T35."""
    group = groups.start(shards=SHARDS, app=APP)
    episodes, shards = await begin_many(agents, group)
    frozen = shards[0]
    group.signal(f"shard {frozen}", signal.SIGSTOP)
    pid = group.pids[f"shard {frozen}"]
    await wait_until_async(lambda: state_of(pid) == "T", "the shard to stand still")
    pairs = list(zip(episodes, shards, strict=True))
    waiting = [asyncio.create_task(episode.add(1)) for episode, shard in pairs if shard == frozen]
    others = [episode for episode, shard in pairs if shard != frozen]
    for total in range(2, 12):
        replies = await asyncio.gather(*(episode.add(1) for episode in others))
        assert [reply["total"] for reply in replies] == [total] * len(others)
    await asyncio.gather(*(episode.end() for episode in others))
    assert not any(task.done() for task in waiting)
    group.signal(f"shard {frozen}", signal.SIGCONT)
    assert [(await task)["total"] for task in waiting] == [2] * len(waiting)
    results = [await episode.end() for episode, shard in pairs if shard == frozen]
    assert [len(result["calls"]) for result in results] == [2] * len(waiting)


def state_of(pid: int) -> str:
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]


async def test_calls_in_flight_on_a_dead_shard_get_one_error_and_run_nowhere_again(
    groups: Groups, agents: Agents
):
    """R-T32, over HTTP and MCP."""
    group = groups.start(shards=SHARDS, app=APP)
    episodes, shards = await begin_many(agents, group)
    direct = [asyncio.create_task(episode.call("wait")) for episode in episodes]
    spoken = [asyncio.create_task(wait_over_mcp(episode)) for episode in episodes]
    await wait_until_async(lambda: len(began(group)) == 2 * EPISODES, "all calls")
    dead = shards[0]
    group.signal(f"shard {dead}", signal.SIGKILL)
    lost = [number for number in range(EPISODES) if shards[number] == dead]
    for number in lost:
        assert told(await direct[number]) == (410, "shard_gone")
        assert await spoken[number] == 410
    kept = [number for number in range(EPISODES) if shards[number] != dead]
    assert not any(task.done() for number in kept for task in (direct[number], spoken[number]))
    for number in kept:
        assert (await episodes[number].add(1))["total"] == 2
        await episodes[number].end()
        assert told(await direct[number]) == (410, "episode_not_running")
        assert await spoken[number] == 410
    assert Counter(began(group)) == {f"e{number}": 2 for number in range(EPISODES)}


async def wait_over_mcp(played: Played) -> int:
    """The code of the error that a call of `wait` ends with."""
    grant = played.order["mcp"]
    async with talking(grant["url"], grant["headers"], "2026-07-28") as talk:
        with pytest.raises(MCPError) as caught:
            await talk.client.call_tool("wait", {})
    return caught.value.code


def began(group: RunningGroup) -> list[str]:
    """The episodes of all calls of `wait` that began, on whichever shard."""
    return re.findall(r"wait began episode=(\S+)", group.log())


async def test_a_dead_shard_has_no_heir_and_its_socket_file_decides_nothing(
    groups: Groups, agents: Agents
):
    """R-T30: there is no replacement; the policy of the group holds."""
    group = groups.start(shards=SHARDS, app=APP)
    episodes, shards = await begin_many(agents, group)
    lost = [episode for episode, shard in zip(episodes, shards, strict=True) if shard == shards[0]]
    socket_file = group.runtime_dir / f"shard-{shards[0]}.sock"
    assert socket_file.is_socket()
    group.signal(f"shard {shards[0]}", signal.SIGKILL)
    assert {told(await episode.run) for episode in lost} == {(502, "shard_died")}
    for _ in range(2):  # with the file, and without
        for episode in lost:
            for name in ("total", "add"):
                reply = await episode.call(name, arguments={"n": 1} if name == "add" else {})
                assert told(reply) == (410, "shard_gone")
        socket_file.unlink(missing_ok=True)
    assert group.log().count("Booting worker") == SHARDS + 1
    kept = [e for e, shard in zip(episodes, shards, strict=True) if shard != shards[0]]
    await asyncio.gather(*(episode.end() for episode in kept))
