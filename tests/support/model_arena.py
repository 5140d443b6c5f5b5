"""The group under a run of the model: alive, replaced when its shards are used up.

An `Arena` keeps one group; `open_arena` is the body of a fixture. It signals members, asks shards
over their own sockets, and tells whether all is as it was: every living shard answers, and no
member holds more descriptors than before.

Spec: docs/lending.md#guards
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import signal
import time
from collections.abc import Awaitable, Callable, Iterator
from dataclasses import dataclass
from typing import Any, Final

from tests.support.group import Groups, RunningGroup, open_groups
from tests.support.ids import ids_of_shard
from tests.support.model import Policy
from tests.support.processes import descriptor_count
from tests.support.raw import open_raw, request_bytes
from tests.support.topology import Topology
from tests.support.waiting import POLL_S, DeadlineError

APP: Final = "tests.support.model_app:gated"
_DEADLINE_S: Final = 15.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Journal:
    """What the living shards ran of one example.

    Attributes:
        runs: How often, by id.
        shards: Who ran it first, by id.
        left: Ids whose client went away at a gate.
    """

    runs: dict[str, int]
    shards: dict[str, int]
    left: set[str]


class Arena:
    """One group at a time; see the module docstring.

    Attributes:
        group: The group of now.
        live: Its living shards.
        started_count: Groups that were started.
    """

    def __init__(self, groups: Groups, topology: Topology, policy: Policy) -> None:
        self.shards = topology.shards
        self.policy = policy
        self.live: list[int] = []
        self.started_count = 0
        self.group: RunningGroup
        self._groups = groups
        self._topology = topology
        self._baseline: dict[str, int] = {}

    async def prepare(self, *, kills: bool) -> None:
        """Have a group; one that can lose a shard and go on, if one will be killed."""
        spare = 1 if kills and self.policy is Policy.CONTINUE else 0
        if len(self.live) > spare:
            return
        if self.started_count and self.live:
            assert self.group.terminate() == 0
        await self._start()

    async def _start(self) -> None:
        env = {"SESSIONS_ON_SHARD_EXIT": "continue"} if self.policy is Policy.CONTINUE else {}
        self.group = self._topology.start(self._groups, APP, env)
        self.started_count += 1
        self.live = list(range(self.shards))
        await self.check_health()
        await self.settle_baseline()

    @property
    def _members(self) -> list[str]:
        routed = ["router"] if "router" in self.group.pids else []
        return [*routed, *(f"shard {index}" for index in self.live)]

    def descriptors(self) -> dict[str, int]:
        """Open descriptors of each living member."""
        return {member: descriptor_count(self.group.pids[member]) for member in self._members}

    async def settle_baseline(self) -> None:
        """Take the descriptors of now as what must be reached again, once they stand still."""
        before: dict[str, int] = {}
        while (now := self.descriptors()) != before:
            before = now
            await asyncio.sleep(POLL_S * 3)
        self._baseline = now

    async def wait_descriptors(self) -> None:
        """Wait until no member holds more descriptors than at the start."""

        async def are_back() -> bool:
            return all(n <= self._baseline[m] for m, n in self.descriptors().items())

        await wait_for(are_back, f"descriptors back at {self._baseline}")

    async def check_health(self) -> None:
        """Every living shard answers on the public address."""
        async with open_raw(self.group.address) as connection:
            for shard in self.live:
                session = ids_of_shard(shard, self.shards)[0]
                target = f"/sessions/{session}/echo?id=health"
                reply = await connection.ask(request_bytes("GET", target))
                assert (reply.status, reply.header("x-id")) == (200, "health"), reply

    # --- trouble

    def stop(self, member: str) -> None:
        """Make a member stand still."""
        self.group.signal(member, signal.SIGSTOP)

    def go_on(self, member: str) -> None:
        """Let it go on."""
        self.group.signal(member, signal.SIGCONT)

    def kill(self, shard: int) -> None:
        """Kill a shard; a group that does not go on without it is over."""
        self.group.signal(f"shard {shard}", signal.SIGKILL)
        self.live = [n for n in self.live if n != shard and self.policy is Policy.CONTINUE]

    async def wait_death(self, shard: int) -> None:
        """Wait until the group noticed a death: goes on without the shard, or has ended."""
        if self.policy is Policy.CONTINUE:
            line = f"the group goes on shard={shard}"

            async def is_noticed() -> bool:
                return line in self.group.log()

            await wait_for(is_noticed, f"the death of shard {shard} noticed")
        else:
            assert await asyncio.to_thread(self.group.wait_exit) == 70

    # --- words with the shards

    async def open_gates(self, seeds: list[str]) -> None:
        """Open gates at every living shard."""
        for shard in self.live:
            for seed in seeds:
                await self._ask(shard, f"/open?id={seed}")

    async def journal(self, prefix: str) -> Journal:
        """What living shards ran, of ids that begin so."""
        runs: dict[str, int] = {}
        shards: dict[str, int] = {}
        left: set[str] = set()
        for shard in self.live:
            found = await self._ask(shard, f"/journal?id={prefix}")
            left |= set(found["left"])
            for seed, count in found["runs"].items():
                runs[seed] = runs.get(seed, 0) + count
                shards.setdefault(seed, shard)
        return Journal(runs=runs, shards=shards, left=left)

    async def wait_run(self, prefix: str, seed: str) -> int:
        """Wait until a request runs; which shard runs it."""
        shard = -1

        async def runs() -> bool:
            nonlocal shard
            shard = (await self.journal(prefix)).shards.get(seed, -1)
            return shard >= 0

        await wait_for(runs, f"{seed} runs")
        return shard

    async def wait_left(self, prefix: str, seed: str) -> None:
        """Wait until the application knows that the client of a request is gone."""

        async def is_left() -> bool:
            return seed in (await self.journal(prefix)).left

        await wait_for(is_left, f"the client of {seed} is known to be gone")

    async def _ask(self, shard: int, target: str) -> dict[str, Any]:
        path = str(self.group.runtime_dir / f"shard-{shard}.sock")
        async with open_raw(path) as connection:
            reply = await connection.ask(request_bytes("GET", target))
        assert reply.status == 200, reply
        found: dict[str, Any] = json.loads(reply.body or b"{}")
        return found


async def wait_for(condition: Callable[[], Awaitable[bool]], what: str) -> None:
    """Wait for a condition that must itself be awaited.

    Raises:
        DeadlineError: It did not hold in time.
    """
    end = time.monotonic() + _DEADLINE_S
    while not await condition():
        if time.monotonic() >= end:
            raise DeadlineError(f"not within {_DEADLINE_S:g} s: {what}")
        await asyncio.sleep(POLL_S)


@contextlib.contextmanager
def open_arena(topology: Topology, policy: Policy) -> Iterator[Arena]:
    """An arena without a group yet; its last group is stopped at the end."""
    with open_groups() as groups:
        yield Arena(groups, topology, policy)
