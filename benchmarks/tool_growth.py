"""What is left of thousands of episodes: claims, memory, descriptors; and whether calls were right.

A crowd's members, which are episodes or sessions, are played in batches, all of a batch at once,
each with a counter of its own. Half of the calls share a few kept connections, on which those of
all members are mixed; the others have a connection each. After every quarter of the run, when no
claim and no connection is left, all processes are weighed.

Spec: docs/benchmark.md#tools
"""

from __future__ import annotations

import asyncio
import json
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Final, Protocol

import httpx

from benchmarks.report import table_text
from tests.support.group import RunningGroup
from tests.support.processes import (
    descriptor_count,
    pss_bytes,
    rss_bytes,
    tcp_connection_count,
)
from tests.support.raw import open_raw, request_bytes
from tests.support.waiting import wait_until_async

CALLS: Final = 8  # of each member; half of them on kept connections
QUARTERS: Final = 4
_AT_ONCE: Final = 64  # new connections
_TIMEOUT_S: Final = 300.0
_GONE_S: Final = 30.0
_POLL_S: Final = 0.1
_STEPS: Final = 97  # counters differ, so that members can hardly be mistaken
_MIB: Final = 1 << 20
_FLAT: Final = 1.05  # a guess: of memory, what tokens that are remembered may take


Headers = Mapping[str, str]
_Replies = dict[int, tuple[int, bytes]]  # by the member's index: status and body


class Crowd(Protocol):
    """Members that can be called; see benchmarks/tool_crowds.py."""

    @property
    def target(self) -> str:
        """Of every call."""

    @property
    def kept_claims(self) -> int:
        """How many claims may be kept of what has ended."""

    async def begin(self, name: str, size: int) -> list[Headers]:
        """Begin a batch.

        Args:
            name: Not used before.
            size: Of the batch.

        Returns:
            What calls of each must send.

        Raises:
            AssertionError: One did not begin.
        """

    async def end(self, totals: Sequence[int]) -> list[bool]:
        """End the batch; whether each member's end told its total, and all of its calls."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Mark:
    """A group at one time, with nothing going on.

    Attributes:
        done: Members that were played so far.
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
        ended: Members by how their end was told: "right" or "wrong".
        shards: Calls by the shard that answered.
        marks: One before the first member that counts, and one after every quarter.
        kept_claims: How many claims may be kept of what has ended.
    """

    came: Counter[str] = field(default_factory=Counter)
    ended: Counter[str] = field(default_factory=Counter)
    shards: Counter[int] = field(default_factory=Counter)
    marks: list[Mark] = field(default_factory=list)
    kept_claims: int = 0

    def faults(self) -> list[str]:
        """What must not be; empty when all was right and flat."""
        found = [f"calls: {n} x {came}" for came, n in self.came.items() if came != "right"]
        found += [f"ends: {n} x {how}" for how, n in self.ended.items() if how != "right"]
        found += [
            f"{mark.claims} claims after {mark.done}"
            for mark in self.marks
            if not 0 <= mark.claims <= self.kept_claims
        ]
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
        head = ["played", "claims", *names]
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
            f"ended                              {_told(self.ended)}",
            f"memory, x after the first quarter  {self.memory_ratio():.3f}",
        ]
        tables = [
            table_text("memory, PSS (RSS) MiB", [head, *memory]),
            table_text("descriptors", [head, *descriptors]),
        ]
        return "\n\n".join(["\n".join(lines), *tables])


def _told(counter: Counter[str]) -> str:
    return ", ".join(f"{count:,} {what}" for what, count in counter.most_common()) or "none"


async def grow(
    group: RunningGroup, crowd: Crowd, *, count: int, batch: int, connections: int
) -> Growth:
    """Play batch by batch; the first one warms up and is not counted.

    Args:
        group: Behind a router.
        crowd: What is played.
        count: How many members in all.
        batch: How many of them at once.
        connections: Kept ones that half of the calls share.

    Raises:
        AssertionError: A member did not begin, or connections were left.
    """
    growth = Growth(kept_claims=crowd.kept_claims)
    limits = httpx.Limits(max_connections=None, max_keepalive_connections=0)
    async with httpx.AsyncClient(limits=limits, trust_env=False, timeout=_TIMEOUT_S) as client:
        await _Player(group, client, connections, Growth()).play(crowd, "warm", min(batch, count))
        growth.marks.append(await _weigh(group, client, growth, 0))
        player = _Player(group, client, connections, growth)
        done = 0
        for quarter in range(1, QUARTERS + 1):
            while done < count * quarter // QUARTERS:
                size = min(batch, count * quarter // QUARTERS - done)
                await player.play(crowd, f"m{done}", size)
                done += size
            growth.marks.append(await _weigh(group, client, growth, done))
    return growth


class _Player:
    """Plays one batch at a time."""

    def __init__(
        self, group: RunningGroup, client: httpx.AsyncClient, connections: int, growth: Growth
    ) -> None:
        self._group = group
        self._client = client
        self._connections = connections
        self._growth = growth

    async def play(self, crowd: Crowd, name: str, size: int) -> None:
        members = await crowd.begin(name, size)
        where: dict[int, int] = {}
        for number in range(1, CALLS + 1):
            ask = self._ask_kept if number <= CALLS // 2 else self._ask_anew
            for index, (status, body) in (await ask(crowd.target, members)).items():
                self._note(index, number, status, body, where)
        totals = [step_of(index) * CALLS for index in range(size)]
        for is_right in await crowd.end(totals):
            self._growth.ended["right" if is_right else "wrong"] += 1

    def _note(
        self, index: int, number: int, status: int, body: bytes, where: dict[int, int]
    ) -> None:
        if status != httpx.codes.OK:
            self._growth.came[str(status)] += 1
            return
        told = json.loads(body)
        shard = where.setdefault(index, told["shard"])
        right = (told["total"], told["shard"]) == (step_of(index) * number, shard)
        self._growth.came["right" if right else "wrong"] += 1
        self._growth.shards[told["shard"]] += 1

    async def _ask_kept(self, target: str, members: Sequence[Headers]) -> _Replies:
        """One call of each; each connection carries those of many."""
        found: _Replies = {}
        waiting = iter(enumerate(members))

        async def carry() -> None:
            async with open_raw(self._group.address, timeout_s=_TIMEOUT_S) as connection:
                for index, headers in waiting:  # shared by all that carry
                    body = _body_of(index)
                    request = request_bytes("POST", target, list(headers.items()), body)
                    reply = await connection.ask(request)
                    found[index] = reply.status, reply.body

        await asyncio.gather(*[carry() for _ in range(self._connections)])
        return found

    async def _ask_anew(self, target: str, members: Sequence[Headers]) -> _Replies:
        """One call of each, each on a connection of its own."""
        url = self._group.url + target
        room = asyncio.Semaphore(_AT_ONCE)  # what waits in the client's pool costs the square

        async def ask(index: int, headers: Headers) -> tuple[int, tuple[int, bytes]]:
            async with room:
                reply = await self._client.post(url, headers=headers, content=_body_of(index))
            return index, (reply.status_code, reply.content)

        return dict(await asyncio.gather(*[ask(n, headers) for n, headers in enumerate(members)]))


def _body_of(index: int) -> bytes:
    return json.dumps({"n": step_of(index)}).encode()


def step_of(index: int) -> int:
    """What a member of a batch adds with each call."""
    return index % _STEPS + 1


async def _weigh(group: RunningGroup, client: httpx.AsyncClient, growth: Growth, done: int) -> Mark:
    """Wait until nothing is open, then weigh."""
    front = group.pids["router"]
    claims = await _wait_claims(group, client, growth.kept_claims)
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


async def _wait_claims(group: RunningGroup, client: httpx.AsyncClient, limit: int) -> int:
    """Wait until the router says that it knows so few; what it says is up to a second old.

    Returns:
        How many it knows at the end of the wait; -1 if it does not tell.
    """
    claims = -1
    for _ in range(int(_GONE_S / _POLL_S)):
        page = (await client.get(f"{group.url}/metrics")).text
        found = re.search(r"^sessile_claims (\d+)", page, re.MULTILINE)
        claims = int(found[1]) if found else -1
        if 0 <= claims <= limit:
            break
        await asyncio.sleep(_POLL_S)
    return claims
