"""Interleaved rounds: every bout once a round, with the CPU that the servers and the load took.

A bout is one workload at one server. What a round's other processes took is told too, since they
share the cores.

Spec: docs/benchmark.md#method
"""

from __future__ import annotations

import os
import platform
import sys
import time
from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from benchmarks.contestants import Contestant
from benchmarks.figures import Sample, Workload
from benchmarks.load import Run
from benchmarks.usage import children_cpu_s, read_busy_s, read_cpu_of


@dataclass(frozen=True, slots=True, kw_only=True)
class Bout:
    """One workload at one server.

    Attributes:
        workload: What is asked.
        contestant: Who is asked.
        load: Does it once, for as many seconds as it is told, and gives what `sample_of` gave.
    """

    workload: Workload
    contestant: Contestant
    load: Callable[[int], Sample]


def sample_of(contestant: Contestant, load: Callable[[], Run]) -> Sample:
    """One run of load and what it took.

    Raises:
        ProcessLookupError: A server died.
        Exception: The load's own.
    """
    before, load_before_s = read_cpu_of(contestant.pids), children_cpu_s()
    run = load()
    after, load_after_s = read_cpu_of(contestant.pids), children_cpu_s()
    spent = {member: after[member] - before[member] for member in before}
    return Sample(run=run, cpu_s=spent, load_cpu_s=load_after_s - load_before_s)


class Rounds:
    """Runs bouts and keeps their samples.

    Attributes:
        samples: Of all rounds, by workload and server.
        loads: Load average (1 minute) before each round and after the last.
        strangers: Of each round, how many cores others than servers and load kept busy.
    """

    def __init__(self, bouts: Sequence[Bout]) -> None:
        """Begin with no sample."""
        self.samples: dict[tuple[Workload, str], list[Sample]] = defaultdict(list)
        self.loads: list[float] = []
        self.strangers: list[float] = []
        self._bouts = bouts
        self._servers = {bout.contestant.name: bout.contestant for bout in bouts}.values()

    def run(self, rounds: int, run_s: int) -> None:
        """Warm every server up, then run all rounds.

        Args:
            rounds: How often every bout is run.
            run_s: Length of one, in whole seconds.

        Raises:
            LoadError: A server answered with an error or not at all.
            ProcessLookupError: A server died.
        """
        for bout in self._bouts:
            bout.load(1)
        for number in range(rounds):
            print(f"round {number + 1} of {rounds}", file=sys.stderr, flush=True)
            self._round(run_s)
        self.loads.append(os.getloadavg()[0])

    def _round(self, run_s: int) -> None:
        self.loads.append(os.getloadavg()[0])
        start, busy_s, ours_s = time.perf_counter(), read_busy_s(), self._our_cpu_s()
        for bout in self._bouts:
            self.samples[bout.workload, bout.contestant.name].append(bout.load(run_s))
        spent_s = read_busy_s() - busy_s - (self._our_cpu_s() - ours_s)
        self.strangers.append(max(0.0, spent_s) / (time.perf_counter() - start))

    def _our_cpu_s(self) -> float:
        servers = (sum(read_cpu_of(server.pids).values()) for server in self._servers)
        return children_cpu_s() + sum(servers)


def describe_machine() -> str:
    """Cores, kernel and Python in one line."""
    names = [
        line.partition(":")[2].strip()
        for line in Path("/proc/cpuinfo").read_text().splitlines()
        if line.startswith("model name")
    ]
    cores = f"{len(os.sched_getaffinity(0))} cores of {names[0] if names else 'unknown make'}"
    return f"{cores}, Linux {platform.release()}, Python {platform.python_version()}"
