"""What a group must bear, at full size: deaths, stops, scale, memory, and large replies.

`python -m benchmarks.endurance [deaths|stops|scale|memory|latency …]` runs what it is told, or all,
prints what clients saw, and ends with 1 if one of them saw what none may see. The same things in
small are tests (`tests/e2e`, `tests/parity`). Nothing here has a goal in seconds.

Spec: docs/benchmark.md#endurance
"""

from __future__ import annotations

import argparse
import asyncio
import shutil
import statistics
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from benchmarks.latency import READERS, lines_of, measure
from tests.parity.cases import CASES
from tests.support.crashes import (
    APP,
    OF_A_SHARD,
    SHARDS,
    Crash,
    Death,
    crash_and_go_on,
    crash_and_halt,
)
from tests.support.crowds import carry_large, hold_many, refuse_beyond, statuses_of_idle
from tests.support.group import RunningGroup, start_group
from tests.support.memory_cgroup import can_limit_memory
from tests.support.mix import run_mix
from tests.support.processes import descriptor_count, rss_bytes, tcp_connection_count
from tests.support.sessions_mix import live_sessions
from tests.support.stop_load import stop_under_load
from tests.support.topology import (
    LONE,
    ROUTED_FOUR,
    ROUTED_SEVEN,
    ROUTED_SIXTEEN,
    ROUTED_TWO,
    Topology,
)
from tests.support.transcript import Transcript
from tests.support.waiting import wait_until

MIB: Final = 1 << 20
DEATHS: Final = 50
IN_FLIGHT: Final = 200
STOPS: Final = 20
SESSIONS: Final = 1000
IDLE: Final = 2000
HELD: Final = 500
LIMIT: Final = 500
LARGE_BYTES: Final = 64 * MIB
REQUESTS: Final = 100_000
GIB: Final = 1 << 30
_CASES: Final = "tests.support.apps:cases"
_SIM: Final = {"SESSIONS_ENGINE_URL": "sim:"}
_CLIENTS: Final = 25


class Endurance:
    """Runs and prints; counts what must not be."""

    def __init__(self, folder: Path, scale: float) -> None:
        """Begin with nothing run.

        Args:
            folder: Empty and with a short path, for the groups' runtime folders.
            scale: Factor for all numbers, 1 = full size.
        """
        self.faults: list[str] = []
        self._folder = folder
        self._scale = scale
        self._groups = 0

    def _count(self, full: int) -> int:
        return max(1, round(full * self._scale))

    @contextmanager
    def _group(
        self, topology: Topology, app: str, env: Mapping[str, str] | None = None
    ) -> Iterator[RunningGroup]:
        self._groups += 1
        group = start_group(
            runtime_dir=self._folder / f"r{self._groups}",
            shards=topology.shards,
            env=topology.env | dict(env or {}),
            app=app,
        )
        try:
            yield group
        finally:
            self._blame(topology.name, group.close())

    def _blame(self, where: str, faults: Sequence[str]) -> None:
        for fault in faults:
            print(f"FAULT {where}: {fault}", flush=True)
        self.faults += faults

    # --- deaths

    def deaths(self) -> None:
        """Every death, under both policies where it can be, at 200 exchanges in every state."""
        cannot = set() if can_limit_memory() else {Death.OOM}
        if cannot:
            print("no death out of memory: this machine lets us make no control group")
        for death in Death:
            if death not in cannot:
                self._die(death, "halt")
        for death in OF_A_SHARD:
            if death not in cannot:
                self._die(death, "continue")

    def _die(self, death: Death, policy: str) -> None:
        env = {"SESSIONS_TIMEOUT_S": "2", "SESSIONS_ON_SHARD_EXIT": policy}
        topology = Topology(name=f"{death.name} {policy}", shards=SHARDS)
        seen: Counter[str] = Counter()
        settled_s, gone_s = [], []
        for _ in range(self._count(DEATHS)):
            with self._group(topology, APP, env) as group:
                crash = asyncio.run(self._crash(group, death, policy))
                if policy == "halt":
                    gone_s.append(crash.settled_s + group.wait_gone())
                elif (code := group.terminate()) != 0:
                    crash.faults.append(f"exit code {code}")
            seen += crash.seen
            settled_s.append(crash.settled_s)
            self._blame(topology.name, crash.faults)
        gone = f", gone {_spread(gone_s)}" if gone_s else ""
        print(f"\n{death.name}, {policy}: {len(settled_s)} deaths, {seen.total()} clients")
        print(f"  last client knew {_spread(settled_s)}{gone}")
        for what, count in sorted(seen.items()):
            print(f"  {count:6} {what}", flush=True)

    async def _crash(self, group: RunningGroup, death: Death, policy: str) -> Crash:
        run = crash_and_halt if policy == "halt" else crash_and_go_on
        return await run(group, death, IN_FLIGHT)

    # --- stops

    def stops(self) -> None:
        """SIGTERM under load, with and without a drain delay."""
        for topology in (LONE, ROUTED_FOUR):
            for delay_s in (0, 1):
                self._stop(topology, delay_s)

    def _stop(self, topology: Topology, delay_s: int) -> None:
        seen: Counter[str] = Counter()
        codes: Counter[int] = Counter()
        for _ in range(self._count(STOPS)):
            env = {"SESSIONS_DRAIN_DELAY_S": str(delay_s)}
            with self._group(topology, _CASES, env) as group:
                stop = asyncio.run(stop_under_load(group))
                codes[group.wait_exit()] += 1
            seen += stop.seen
            self._blame(topology.name, stop.faults)
        print(f"\nSIGTERM, {topology.name}, drain delay {delay_s} s: exit codes {dict(codes)}")
        print(f"  {dict(seen)}", flush=True)
        if set(codes) != {0}:
            self._blame(topology.name, [f"exit codes {dict(codes)}"])

    # --- scale

    def scale(self) -> None:
        """Sessions, connections and bodies at every number of shards; parity with a lone shard."""
        for topology in (LONE, ROUTED_TWO, ROUTED_SEVEN, ROUTED_SIXTEEN):
            self._live(topology)
            self._crowd(topology)
        for topology in (ROUTED_TWO, ROUTED_SEVEN):
            self._compare(topology)

    def _live(self, topology: Topology) -> None:
        with self._group(topology, "", _SIM) as group:
            for kept in (0, 8):
                count = self._count(SESSIONS)
                began = time.monotonic()
                living = live_sessions(
                    group.address, sessions=count, turns=2, kept_connections=kept
                )
                lives = asyncio.run(living)
                took_s = time.monotonic() - began
                where = f"{topology.name}, {f'{kept} kept' if kept else 'new'} connections"
                print(f"\n{where}: {count} sessions in {took_s:.1f} s: {dict(lives.statuses)}")
                self._blame(where, lives.wrong)

    def _crowd(self, topology: Topology) -> None:
        with self._group(topology, APP) as group:
            began = time.monotonic()
            rounds = asyncio.run(statuses_of_idle(group.address, self._count(IDLE)))
            print(f"  {self._count(IDLE)} idle connections, asked twice: {rounds}")
            held = asyncio.run(hold_many(group.address, topology.shards, self._count(HELD)))
            print(f"  {held} exchanges in flight at once, all answered")
            asyncio.run(carry_large(group.address, LARGE_BYTES))
            print("  64 MiB each way, framed and chunked, digests right", end="")
            print(f" ({time.monotonic() - began:.1f} s)", flush=True)
        if rounds != [{200}, {200}]:
            self._blame(topology.name, [f"idle connections: {rounds}"])
        limit = self._count(LIMIT)
        with self._group(topology, APP, {"SESSIONS_MAX_CONNECTIONS": str(limit)}) as group:
            refused = Counter(r.status for r in asyncio.run(refuse_beyond(group.address, limit)))
        print(f"  beyond {limit} connections: {dict(refused)}, served again", flush=True)
        if set(refused) != {503}:
            self._blame(topology.name, [f"beyond the limit: {dict(refused)}"])

    def _compare(self, topology: Topology) -> None:
        with self._group(LONE, "", _SIM) as lone, self._group(topology, "", _SIM) as group:
            count = 0
            for case in CASES:
                for keep_alive in (False, True):
                    found = []
                    for address in (lone.address, group.address):
                        script = Transcript(address, keep_alive=keep_alive)
                        case(script)
                        script.close()
                        found.append(script.lines)
                    count += len(found[0])
                    if found[0] != found[1]:
                        self._blame(topology.name, [f"{case.__name__} differs"])
        print(f"\n{topology.name}: {len(CASES)} cases, {count} replies compared with a lone shard")

    # --- memory

    def memory(self) -> None:
        """Descriptors and resident memory over 100,000 mixed requests."""
        for topology in (LONE, ROUTED_TWO):
            with self._group(topology, _CASES) as group:
                print(f"\n{topology.name}: descriptors, resident MiB", flush=True)
                self._mix(group, 0.05)
                self._weigh(group, "start")
                for when in ("middle", "end"):
                    count = self._mix(group, 0.5)
                    self._weigh(group, f"{when}, {count} more")

    def _mix(self, group: RunningGroup, part: float) -> int:
        each = self._count(round(REQUESTS * part / _CLIENTS))
        tally = asyncio.run(
            run_mix(group.address, clients=_CLIENTS, exchanges=each, seed=round(part * 100))
        )
        return tally.exchanges

    def _weigh(self, group: RunningGroup, when: str) -> None:
        front = group.pids.get("router") or group.pids["shard 0"]
        wait_until(lambda: not tcp_connection_count(front), "all connections closed", 60.0)
        members = {member: pid for member, pid in group.pids.items() if member != "arbiter"}
        each = (
            f"{member} {descriptor_count(pid)} {rss_bytes(pid) / MIB:.1f}"
            for member, pid in members.items()
        )
        print(f"  {when:20} {'   '.join(each)}", flush=True)

    # --- latency

    def latency(self) -> None:
        """Small requests beside four large replies."""
        with self._group(ROUTED_TWO, _CASES) as group:
            print(f"\nsmall requests beside {READERS} replies of 1 GiB, {ROUTED_TWO.name}")
            for line in lines_of(measure(group, ROUTED_TWO.shards, GIB)):
                print(f"  {line}", flush=True)


def _spread(values_s: Sequence[float]) -> str:
    return f"{statistics.median(values_s):.3f} s (median; at most {max(values_s):.3f} s)"


def main(arguments: Sequence[str] | None = None) -> int:
    """Run what the command line names; returns the exit code."""
    names = ("deaths", "stops", "scale", "memory", "latency")
    parser = argparse.ArgumentParser(prog="python -m benchmarks.endurance")
    parser.add_argument("what", nargs="*", help=f"any of {', '.join(names)}; all if none is named")
    parser.add_argument("--scale", type=float, default=1.0, help="factor for all numbers")
    options = parser.parse_args(arguments)
    if unknown := set(options.what) - set(names):
        parser.error(f"unknown: {', '.join(sorted(unknown))}")
    folder = Path(tempfile.mkdtemp(prefix="sese", dir="/tmp"))  # short: sockets have 107 bytes
    try:
        endurance = Endurance(folder, options.scale)
        for name in options.what or names:
            run: Callable[[], None] = getattr(endurance, name)
            run()
    finally:
        shutil.rmtree(folder)
    print(f"\n{len(endurance.faults)} faults")
    return 1 if endurance.faults else 0


if __name__ == "__main__":
    sys.exit(main())
