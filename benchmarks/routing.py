"""What routing costs: a group beside a lone shard, a stock uvicorn, and nginx before one.

`python -m benchmarks.routing` starts all servers, loads them in interleaved rounds (every server
once per workload and round), prints medians, ratios and whether the goals are met, and stops them.
The exit code says whether it ran; with `--check`, 1 says that a goal is missed.

Spec: docs/benchmark.md#routing
"""

from __future__ import annotations

import argparse
import shutil
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Final

from benchmarks.contestants import Contestant, open_contestants
from benchmarks.docs import replace_figures
from benchmarks.figures import ROUTER, Sample, Workload, judge
from benchmarks.load import LoadError, read_large, run_wrk
from benchmarks.report import Report, render_json, render_text
from benchmarks.rounds import Bout, Rounds, describe_machine, sample_of
from benchmarks.usage import Memory, read_memory

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


def _bouts_of(plan: Plan, contestants: Sequence[Contestant]) -> list[Bout]:
    return [
        Bout(
            workload=workload,
            contestant=contestant,
            load=partial(_sample, plan, contestant, workload),
        )
        for workload in Workload
        for contestant in contestants
    ]


def _sample(plan: Plan, contestant: Contestant, workload: Workload, run_s: int) -> Sample:
    if workload is Workload.LARGE:
        return sample_of(contestant, lambda: read_large(contestant.address, plan.large_bytes))
    try:
        return sample_of(
            contestant,
            lambda: run_wrk(contestant.address, duration_s=run_s, close=workload is Workload.NEW),
        )
    except LoadError as error:
        raise LoadError(f"{contestant.name}, {workload.value}: {error}") from error


def _measure(plan: Plan, contestants: Sequence[Contestant]) -> Report:
    """Load all servers.

    Raises:
        LoadError: A server answered with an error or not at all.
        ProcessLookupError: A server died.
    """
    rounds = Rounds(_bouts_of(plan, contestants))
    rounds.run(plan.rounds, plan.run_s)
    memory = {contestant.name: _memory_of(contestant) for contestant in contestants}
    router_peaks = [
        members[ROUTER].peak_bytes / (1 << 20) for members in memory.values() if ROUTER in members
    ]
    return Report(
        samples=rounds.samples,
        memory=memory,
        machine=describe_machine(),
        loads=rounds.loads,
        strangers=rounds.strangers,
        large_bytes=plan.large_bytes,
        verdicts=judge(rounds.samples, router_peaks),
    )


def _memory_of(contestant: Contestant) -> dict[str, Memory]:
    return {member: read_memory(pid) for member, pid in contestant.pids.items()}


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
            report = _measure(QUICK if options.quick else FULL, contestants)
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
