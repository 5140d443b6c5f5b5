"""What is left of thousands of episodes: claims, memory, descriptors; and whether calls were right.

Episodes are played in batches, all of a batch at once, each with a counter of its own. Half of the
calls share a few kept connections, on which the calls of all episodes are mixed; the others have a
connection each. After every quarter of the run, when no claim and no connection is left, all
processes are weighed.

Spec: docs/benchmark.md#tools
"""

from __future__ import annotations

import asyncio
import json
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Final

import httpx

from benchmarks.report import table_text
from tests.support.agents import Agents, Played, open_agents
from tests.support.group import RunningGroup
from tests.support.processes import (
    descriptor_count,
    pss_bytes,
    rss_bytes,
    tcp_connection_count,
)
from tests.support.raw import open_raw, request_bytes
from tests.support.waiting import wait_until_async

CALLS: Final = 8  # of each episode; half of them on kept connections
QUARTERS: Final = 4
_AT_ONCE: Final = 64  # new connections
_TIMEOUT_S: Final = 300.0
_GONE_S: Final = 60.0
_STEPS: Final = 97  # counters differ, so that no two episodes of a batch can be mistaken
_MIB: Final = 1 << 20
_FLAT: Final = 1.05  # a guess: of memory, what tokens that are remembered may take


@dataclass(frozen=True, slots=True, kw_only=True)
class Mark:
    """A group at one time, with nothing going on.

    Attributes:
        done: Episodes that were played so far.
        claims: That the router knows.
        pss_mib: Memory of each process, its share of what is shared.
        rss_mib: Memory of each process, what is shared counted whole.
        descriptors: Of each process.
    """

    done: int
    claims: int
    pss_mib: Mapping[str, float]
    rss_mib: Mapping[str, float]
    descriptors: Mapping[str, int]


@dataclass(slots=True, kw_only=True)
class Growth:
    """A whole run.

    Attributes:
        came: Calls by what came: "right", "wrong", or a status.
        ended: Episodes by how `/run` told of them: "right" or "wrong".
        shards: Calls by the shard that answered.
        marks: One before the first episode that counts, and one after every quarter.
    """

    came: Counter[str] = field(default_factory=Counter)
    ended: Counter[str] = field(default_factory=Counter)
    shards: Counter[int] = field(default_factory=Counter)
    marks: list[Mark] = field(default_factory=list)

    def faults(self) -> list[str]:
        """What must not be; empty when all was right and flat."""
        found = [f"calls: {n} x {came}" for came, n in self.came.items() if came != "right"]
        found += [f"episodes: {n} x {how}" for how, n in self.ended.items() if how != "right"]
        found += [f"{mark.claims} claims after {mark.done}" for mark in self.marks if mark.claims]
        first, last = self.marks[1], self.marks[-1]
        found += [
            f"{name}: {last.descriptors[name]} descriptors, {count} after {first.done}"
            for name, count in first.descriptors.items()
            if last.descriptors[name] > count
        ]
        ratio = self.memory_ratio()
        return found + ([f"memory grew to {ratio:.3f} x"] if ratio > _FLAT else [])

    def memory_ratio(self) -> float:
        """Resident memory of all processes at the end over that after the first quarter.

        Shares (PSS) would also tell how many strangers have the same libraries loaded.
        """
        return sum(self.marks[-1].rss_mib.values()) / sum(self.marks[1].rss_mib.values())

    def to_json(self) -> dict[str, object]:
        """Every figure."""
        return {
            "calls": dict(self.came),
            "episodes": dict(self.ended),
            "calls_by_shard": dict(sorted(self.shards.items())),
            "marks": [asdict(mark) for mark in self.marks],
            "memory_ratio": self.memory_ratio(),
        }

    def text(self) -> str:
        """The tables."""
        names = list(self.marks[0].pss_mib)
        head = ["episodes", "claims", *names]
        memory = [
            [f"{mark.done:,}", f"{mark.claims}"]
            + [f"{mark.pss_mib[name]:.1f} ({mark.rss_mib[name]:.1f})" for name in names]
            for mark in self.marks
        ]
        descriptors = [
            [f"{mark.done:,}", f"{mark.claims}", *(str(mark.descriptors[name]) for name in names)]
            for mark in self.marks
        ]
        shards = Counter({f"at shard {shard}": n for shard, n in sorted(self.shards.items())})
        lines = [
            f"calls                              {_told(self.came)}",
            f"answered                           {_told(shards)}",
            f"episodes                           {_told(self.ended)}",
            f"memory, x after the first quarter  {self.memory_ratio():.3f}",
        ]
        tables = [
            table_text("memory, PSS (RSS) MiB", [head, *memory]),
            table_text("descriptors", [head, *descriptors]),
        ]
        return "\n\n".join(["\n".join(lines), *tables])


def _told(counter: Counter[str]) -> str:
    return ", ".join(f"{count:,} {what}" for what, count in counter.most_common()) or "none"


async def play_episodes(group: RunningGroup, *, count: int, batch: int, connections: int) -> Growth:
    """Play episodes batch by batch.

    Args:
        group: Of the example environment, behind a router.
        count: How many episodes.
        batch: How many of them at once.
        connections: Kept ones that half of the calls share.

    Raises:
        AssertionError: An episode did not begin, or claims or connections were left.
    """
    growth = Growth()
    async with open_agents() as agents:
        agents.client.timeout = httpx.Timeout(_TIMEOUT_S)
        crowd = _Crowd(group, agents, connections, growth)
        warm = Growth()
        await _Crowd(group, agents, connections, warm).play("warm", min(batch, count))
        growth.marks.append(await _weigh(group, agents, 0))
        done = 0
        for quarter in range(1, QUARTERS + 1):
            while done < count * quarter // QUARTERS:
                size = min(batch, count * quarter // QUARTERS - done)
                await crowd.play(f"e{done}", size)
                done += size
            growth.marks.append(await _weigh(group, agents, done))
    return growth


class _Crowd:
    """Plays one batch at a time."""

    def __init__(
        self, group: RunningGroup, agents: Agents, connections: int, growth: Growth
    ) -> None:
        self._group = group
        self._agents = agents
        self._connections = connections
        self._growth = growth

    async def play(self, name: str, size: int) -> None:
        begun = [self._agents.begin(self._group.url, f"{name}-{n}") for n in range(size)]
        episodes = await asyncio.gather(*begun)
        where: dict[int, int] = {}
        for number in range(1, CALLS + 1):
            ask = self._ask_kept if number <= CALLS // 2 else self._ask_anew
            for index, (status, body) in (await ask(episodes)).items():
                self._note(index, number, status, body, where)
        results = await asyncio.gather(*[episode.end() for episode in episodes])
        for index, result in enumerate(results):
            right = (_step(index) * CALLS, CALLS, httpx.codes.OK)
            told = (result["total"], len(result["calls"]), result["agent_status"])
            self._growth.ended["right" if told == right else "wrong"] += 1

    def _note(
        self, index: int, number: int, status: int, body: bytes, where: dict[int, int]
    ) -> None:
        if status != httpx.codes.OK:
            self._growth.came[str(status)] += 1
            return
        told = json.loads(body)
        shard = where.setdefault(index, told["shard"])
        right = (told["total"], told["shard"]) == (_step(index) * number, shard)
        self._growth.came["right" if right else "wrong"] += 1
        self._growth.shards[told["shard"]] += 1

    async def _ask_kept(self, episodes: Sequence[Played]) -> dict[int, tuple[int, bytes]]:
        """One call of each episode; each connection carries those of many."""
        found: dict[int, tuple[int, bytes]] = {}
        waiting = iter(enumerate(episodes))

        async def carry() -> None:
            async with open_raw(self._group.address) as connection:
                for index, episode in waiting:  # shared by all that carry
                    body = json.dumps({"n": _step(index)}).encode()
                    headers = list(episode.headers.items())
                    reply = await connection.ask(request_bytes("POST", "/tools/add", headers, body))
                    found[index] = reply.status, reply.body

        await asyncio.gather(*[carry() for _ in range(self._connections)])
        return found

    async def _ask_anew(self, episodes: Sequence[Played]) -> dict[int, tuple[int, bytes]]:
        """One call of each episode, each on a connection of its own."""
        room = asyncio.Semaphore(_AT_ONCE)

        async def ask(index: int, episode: Played) -> tuple[int, tuple[int, bytes]]:
            async with room:
                reply = await episode.call("add", arguments={"n": _step(index)})
            return index, (reply.status_code, reply.content)

        return dict(await asyncio.gather(*[ask(n, episode) for n, episode in enumerate(episodes)]))


def _step(index: int) -> int:
    return index % _STEPS + 1


async def _weigh(group: RunningGroup, agents: Agents, done: int) -> Mark:
    """Wait until nothing is open, then weigh."""
    front = group.pids["router"]
    claims = await wait_no_claims(group, agents)
    await wait_until_async(
        lambda: not tcp_connection_count(front), "all connections closed", _GONE_S
    )
    members = {name: pid for name, pid in group.pids.items() if name != "arbiter"}
    return Mark(
        done=done,
        claims=claims,
        pss_mib={name: pss_bytes(pid) / _MIB for name, pid in members.items()},
        rss_mib={name: rss_bytes(pid) / _MIB for name, pid in members.items()},
        descriptors={name: descriptor_count(pid) for name, pid in members.items()},
    )


async def wait_no_claims(group: RunningGroup, agents: Agents) -> int:
    """Wait until the router says that it knows no claim; what it says is up to a second old.

    Returns:
        How many it knows at the end of the wait; 0 unless they stayed.
    """
    claims = -1
    for _ in range(int(_GONE_S / 0.1)):
        page = (await agents.client.get(f"{group.url}/metrics")).text
        found = re.search(r"^sessile_claims (\d+)", page, re.MULTILINE)
        claims = int(found[1]) if found else -1
        if claims == 0:
            break
        await asyncio.sleep(0.1)
    return claims
