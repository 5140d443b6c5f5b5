"""What routing costs: a group beside a lone shard, a stock uvicorn, and nginx before one.

`python -m benchmarks.routing` starts all servers, loads them in interleaved rounds (every server
once per workload and round), prints medians, ratios and whether the goals are met, and stops them.
The exit code says whether it ran; with `--check`, 1 says that a goal is missed.

Spec: docs/benchmark.md#routing
"""

from __future__ import annotations

import argparse
import os
import platform
import shutil
import sys
import tempfile
import time
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from benchmarks.contestants import Contestant, open_contestants
from benchmarks.docs import replace_figures
from benchmarks.figures import ROUTER, Sample, Workload, judge
from benchmarks.load import LoadError, Run, read_large, run_wrk
from benchmarks.report import Report, render_json, render_text
from benchmarks.usage import Memory, children_cpu_s, read_busy_s, read_cpu_of, read_memory

_GIB: Final = 1 << 30
_MISSED: Final = 1
_NOT_RUN: Final = 2


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """How long a benchmark runs.

    Attributes:
        rounds: How often every server is loaded with every workload.
        run_s: Length of one run of small requests, in whole seconds.
        large_bytes: Size of the large reply.
    """

    rounds: int
    run_s: int
    large_bytes: int


FULL: Final = Plan(rounds=5, run_s=4, large_bytes=_GIB)
QUICK: Final = Plan(rounds=3, run_s=1, large_bytes=_GIB // 4)


class Benchmark:
    """Collects the samples of one plan over running servers."""

    def __init__(self, plan: Plan, contestants: Sequence[Contestant]) -> None:
        self._plan = plan
        self._contestants = contestants
        self._samples: dict[tuple[Workload, str], list[Sample]] = defaultdict(list)
        self._loads: list[float] = []
        self._strangers: list[float] = []

    def run(self) -> Report:
        """Warm every server up, then run all rounds.

        Raises:
            LoadError: A server answered with an error or not at all.
            ProcessLookupError: A server died.
        """
        for contestant in self._contestants:
            for workload in Workload:
                self._load(contestant, workload, run_s=1)
        for number in range(self._plan.rounds):
            print(f"round {number + 1} of {self._plan.rounds}", file=sys.stderr, flush=True)
            self._round()
        self._loads.append(os.getloadavg()[0])
        return self._report()

    def _round(self) -> None:
        self._loads.append(os.getloadavg()[0])
        start, busy_s, ours_s = time.perf_counter(), read_busy_s(), self._our_cpu_s()
        for workload in Workload:
            for contestant in self._contestants:
                before = read_cpu_of(contestant.pids)
                run = self._load(contestant, workload, run_s=self._plan.run_s)
                after = read_cpu_of(contestant.pids)
                spent = {member: after[member] - before[member] for member in before}
                sample = Sample(run=run, cpu_s=spent)
                self._samples[workload, contestant.name].append(sample)
        spent_s = read_busy_s() - busy_s - (self._our_cpu_s() - ours_s)
        self._strangers.append(max(0.0, spent_s) / (time.perf_counter() - start))

    def _load(self, contestant: Contestant, workload: Workload, run_s: int) -> Run:
        if workload is Workload.LARGE:
            return read_large(contestant.address, self._plan.large_bytes)
        try:
            return run_wrk(contestant.address, duration_s=run_s, close=workload is Workload.NEW)
        except LoadError as error:
            raise LoadError(f"{contestant.name}, {workload.value}: {error}") from error

    def _our_cpu_s(self) -> float:
        servers = (sum(read_cpu_of(c.pids).values()) for c in self._contestants)
        return children_cpu_s() + sum(servers)

    def _report(self) -> Report:
        memory = {c.name: _memory_of(c) for c in self._contestants}
        router_peaks = [
            members[ROUTER].peak_bytes / (1 << 20)
            for members in memory.values()
            if ROUTER in members
        ]
        return Report(
            samples=self._samples,
            memory=memory,
            machine=describe_machine(),
            loads=self._loads,
            strangers=self._strangers,
            large_bytes=self._plan.large_bytes,
            verdicts=judge(self._samples, router_peaks),
        )


def _memory_of(contestant: Contestant) -> dict[str, Memory]:
    return {member: read_memory(pid) for member, pid in contestant.pids.items()}


def describe_machine() -> str:
    """Cores, kernel and Python in one line."""
    names = [
        line.partition(":")[2].strip()
        for line in Path("/proc/cpuinfo").read_text().splitlines()
        if line.startswith("model name")
    ]
    cores = f"{len(os.sched_getaffinity(0))} cores of {names[0] if names else 'unknown make'}"
    return f"{cores}, Linux {platform.release()}, Python {platform.python_version()}"


def _parse_arguments(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.routing")
    parser.add_argument("--quick", action="store_true", help="under a minute, for a first look")
    parser.add_argument("--check", action="store_true", help="exit 1 if a goal is missed")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write every sample there")
    parser.add_argument("--docs", type=Path, metavar="FILE", help="replace the figures of a page")
    return parser.parse_args(arguments)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the benchmark; returns the exit code."""
    options = _parse_arguments(arguments)
    folder = Path(tempfile.mkdtemp(prefix="sesb", dir="/tmp"))  # short: sockets have 107 bytes
    try:
        with open_contestants(folder) as contestants:
            report = Benchmark(QUICK if options.quick else FULL, contestants).run()
    except LoadError as error:
        print(f"the benchmark did not run: {error}", file=sys.stderr)
        return _NOT_RUN
    finally:
        shutil.rmtree(folder)
    text = render_text(report)
    print(text)
    if options.json is not None:
        options.json.write_text(render_json(report))
    if options.docs is not None:
        options.docs.write_text(replace_figures(options.docs.read_text(), text))
    is_missed = not all(verdict.is_met for verdict in report.verdicts)
    return _MISSED if options.check and is_missed else 0


if __name__ == "__main__":
    sys.exit(main())
