"""Three trials of episode tools, and what agents saw in them.

Direct: many episodes at once, each with a counter of its own, called on new connections (R-E1).
MCP: clients of the official SDK without keep-alive, in all generations of the protocol, each with
an episode; they list its tools and call them (R-E2). Death: one shard is killed, and the episodes
that it ran are called once more over both (R-E3). Nothing is asserted: what came is counted, and
`Seen.faults` compares it with what must come.

Spec: docs/benchmark.md#tools
"""

from __future__ import annotations

import asyncio
import signal
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

import httpx
from mcp import Client, MCPError

from tests.support.agents import Agents, Played, open_agents
from tests.support.group import RunningGroup
from tests.support.mcp_clients import MODES, talking

RIGHT: Final = "right"
WRONG: Final = "wrong"
_AT_ONCE: Final = 32  # connections of agents
_TIMEOUT_S: Final = 120.0  # far over what a machine full of other work needs
_TOOLS: Final = ["add", "total"]
_ASKED: Final = 200  # calls until one finds its episode, with claims switched off


@dataclass(frozen=True, slots=True, kw_only=True)
class Size:
    """How much a trial does.

    Attributes:
        episodes: Of direct calls.
        calls: Of each of them.
        clients: Of MCP, each with an episode.
        client_calls: Of each of them.
        lost: Episodes of the third trial; more if one shard got all of them.
    """

    episodes: int
    calls: int = 8
    clients: int
    client_calls: int = 4
    lost: int


FULL: Final = Size(episodes=200, clients=50, lost=16)
SMALL: Final = Size(episodes=40, clients=12, lost=8)


@dataclass(slots=True, kw_only=True)
class Seen:
    """What agents saw; each counter by what came.

    Attributes:
        direct: Direct calls.
        lists: Lists of tools over MCP.
        mcp: Calls over MCP.
        dead: Direct calls of episodes whose shard died.
        dead_mcp: The same over MCP.
        left: Direct calls of all other episodes after the death.
        shards: Shards that answered direct calls.
    """

    direct: Counter[str] = field(default_factory=Counter)
    lists: Counter[str] = field(default_factory=Counter)
    mcp: Counter[str] = field(default_factory=Counter)
    dead: Counter[str] = field(default_factory=Counter)
    dead_mcp: Counter[str] = field(default_factory=Counter)
    left: Counter[str] = field(default_factory=Counter)
    shards: set[int] = field(default_factory=set)

    def faults(self) -> list[str]:
        """What was not as it must be; empty when all was."""
        gone = "410 shard_gone"
        expected = {
            "direct calls": (self.direct, RIGHT),
            "MCP lists": (self.lists, RIGHT),
            "MCP calls": (self.mcp, RIGHT),
            "direct calls of a dead shard": (self.dead, gone),
            "MCP calls of a dead shard": (self.dead_mcp, gone),
            "direct calls of the shards left": (self.left, RIGHT),
        }
        found = [
            f"{what}: {count} x {came}"
            for what, (counter, right) in expected.items()
            for came, count in counter.items()
            if came != right
        ]
        found += [f"{what}: none" for what, (counter, _) in expected.items() if not counter]
        return found + ([] if len(self.shards) > 1 else [f"only shards {self.shards} answered"])

    def to_json(self) -> dict[str, Any]:
        """All of it."""
        counters = {"direct", "lists", "mcp", "dead", "dead_mcp", "left"}
        counted = {name: dict(getattr(self, name)) for name in sorted(counters)}
        return counted | {"shards": sorted(self.shards)}


async def try_tools(group: RunningGroup, size: Size) -> Seen:
    """All three trials; a shard of the group is dead afterwards.

    Args:
        group: Of the example environment, fresh, with at least 2 shards.
        size: How much is done.

    Returns:
        What agents saw.

    Raises:
        AssertionError: An episode did not begin or end.
        httpx.HTTPError: A connection failed.
    """
    seen = Seen()
    async with open_agents() as agents:
        agents.client.timeout = httpx.Timeout(_TIMEOUT_S)
        await _try_direct(group, agents, size, seen)
        await _try_mcp(group, agents, size, seen)
        await _try_death(group, agents, size, seen)
    return seen


async def _begin(group: RunningGroup, agents: Agents, name: str, count: int) -> list[Played]:
    begun = [agents.begin(group.url, f"{name}{number}") for number in range(count)]
    return await asyncio.gather(*begun)


async def _try_direct(group: RunningGroup, agents: Agents, size: Size, seen: Seen) -> None:
    episodes = await _begin(group, agents, "direct", size.episodes)
    room = asyncio.Semaphore(_AT_ONCE)

    async def play(episode: Played, step: int) -> None:
        total, used = 0, set()
        for _ in range(size.calls):
            async with room:
                reply = await episode.call("add", arguments={"n": step})
            came = _came(reply, total + step)
            if reply.status_code == httpx.codes.OK:
                total += step
                used.add(reply.json()["shard"])
            seen.direct[came if len(used) <= 1 else WRONG] += 1
        seen.shards |= used
        await episode.end()

    await asyncio.gather(*[play(episode, step) for step, episode in enumerate(episodes, 1)])


def _came(reply: httpx.Response, total: int) -> str:
    """A direct call's reply in a word."""
    if reply.status_code != httpx.codes.OK:
        return f"{reply.status_code} {reply.json()['error']['code']}"
    return RIGHT if reply.json()["total"] == total else WRONG


async def _try_mcp(group: RunningGroup, agents: Agents, size: Size, seen: Seen) -> None:
    episodes = await _begin(group, agents, "mcp", size.clients)
    room = asyncio.Semaphore(_AT_ONCE)

    async def play(episode: Played, mode: str) -> None:
        async with room:
            await _play_mcp(episode, mode, size.client_calls, seen)
        await episode.end()

    plays = [play(episode, MODES[n % len(MODES)]) for n, episode in enumerate(episodes)]
    await asyncio.gather(*plays)


async def _play_mcp(episode: Played, mode: str, calls: int, seen: Seen) -> None:
    grant = episode.order["mcp"]
    try:
        async with talking(grant["url"], grant["headers"], mode) as talk:
            seen.lists[await _list(talk.client)] += 1
            total = 0
            for _ in range(calls):
                came = await _call(talk.client, total + 1)
                total += came == RIGHT
                seen.mcp[came] += 1
    except MCPError as error:  # it could not even begin
        came = f"not begun: {_refused(error)}"
        seen.lists[came] += 1
        seen.mcp[came] += calls


async def _list(client: Client) -> str:
    try:
        listed = await client.list_tools()
    except MCPError as error:
        return _refused(error)
    return RIGHT if [tool.name for tool in listed.tools] == _TOOLS else WRONG


async def _call(client: Client, total: int) -> str:
    try:
        result = await client.call_tool("add", {"n": 1})
    except MCPError as error:
        return _refused(error)
    told = result.structured_content
    return RIGHT if told is not None and told["total"] == total else WRONG


def _refused(error: MCPError) -> str:
    """An error over MCP in a word; our own code is in its data, if the client shows that."""
    data = error.error.data
    if isinstance(data, Mapping) and "code" in data:
        return f"{error.code} {data['code']}"
    return f"{error.code} {error.message}"


async def _try_death(group: RunningGroup, agents: Agents, size: Size, seen: Seen) -> None:
    episodes: list[Played] = []
    where: list[int] = []
    while len(set(where)) < 2:  # one that dies, and one that goes on
        more = await _begin(group, agents, f"lost{len(episodes)}-", size.lost)
        where += [await _shard_of(episode) for episode in more]
        episodes += more
    dead = where[0]
    lost = [episode for episode, shard in zip(episodes, where, strict=True) if shard == dead]
    left = [episode for episode, shard in zip(episodes, where, strict=True) if shard != dead]
    group.signal(f"shard {dead}", signal.SIGKILL)
    await asyncio.gather(*[episode.run for episode in lost])  # answered when the death is known
    for number, episode in enumerate(lost):
        seen.dead[_came(await episode.call("add", arguments={"n": 1}), 0)] += 1
        grant = episode.order["mcp"]
        try:
            async with talking(grant["url"], grant["headers"], MODES[number % 3]) as talk:
                seen.dead_mcp[await _call(talk.client, 0)] += 1
        except MCPError as error:
            seen.dead_mcp[_refused(error)] += 1
    for episode in left:
        seen.left[_came(await episode.call("add", arguments={"n": 1}), 1)] += 1
        await episode.end()


async def _shard_of(episode: Played) -> int:
    """The shard of an episode, asked until a call finds it."""
    for _ in range(_ASKED):
        reply = await episode.call("total")
        if reply.status_code == httpx.codes.OK:
            shard: int = reply.json()["shard"]
            return shard
    raise AssertionError(f"{_ASKED} calls did not find their episode")
