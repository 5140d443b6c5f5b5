"""A production run's outcome as tables, for a terminal and for docs/benchmark.md.

Spec: docs/benchmark.md#production-shape
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from benchmarks.figures import ROUTER, spread_of
from benchmarks.outcome import ARBITER, DRIVER, ENGINE, SHARD, Outcome, Pair, Phase, percentile
from benchmarks.report import spread_text, table_text, verdict_table
from benchmarks.shape import MIB

_GIB: Final = 1 << 30


def render_text(outcome: Outcome) -> str:
    """All tables."""
    blocks = [
        _conditions(outcome),
        _speed(outcome),
        _cpu_table(outcome),
        _large_table(outcome),
        _memory_table(outcome),
        _lag_table(outcome),
        *([_pair_table(outcome)] if outcome.pairs else []),
        verdict_table(outcome.verdicts()),
    ]
    return "\n\n".join(blocks)


def _conditions(outcome: Outcome) -> str:
    plan, shape = outcome.plan, outcome.plan.shape
    kept = "in files" if plan.spool else "in memory"
    last = f"{shape.final_body_bytes / MIB:,.4g} MiB of replay, {shape.row_bytes:,} bytes a token"
    lines = [
        outcome.machine,
        f"sessions                    {shape.sessions}, of {shape.turns} turns each",
        f"reply of the last turn      {last}",
        f"shards, engines             {plan.shards}, {plan.engine_procs}; replay {kept}",
        f"pauses                      think {plan.think_s:g} s, tool {plan.tool_s:g} s",
        f"load average                {' '.join(f'{load:.1f}' for load in outcome.loads)}",
        f"cores busy with other work  {outcome.strangers:.1f}",
    ]
    return "\n".join(lines)


def _speed(outcome: Outcome) -> str:
    work = outcome.work
    times_s = [turn.took_s for turn in work.turns]
    cells = [
        f"{len(work.turns):,}",
        f"{work.mib / 1024:,.1f}",
        f"{work.took_s:,.1f}",
        f"{len(work.turns) / work.took_s:,.1f}",
        f"{work.mib / 1024 / work.took_s:.2f}",
        f"{percentile(times_s, 0.5):.2f}",
        f"{percentile(times_s, 0.99):.2f}",
        f"{len(work.failures)}",
    ]
    head = ["turns", "GiB", "s", "turns/s", "GiB/s", "reply p50 s", "p99 s", "failed"]
    return table_text("all sessions at once", [head, cells])


def _cpu_table(outcome: Outcome) -> str:
    work = outcome.work
    total_s = sum(work.cpu_s.values())
    lines = [["process", "CPU s", "ms/MiB", "ms/turn", "share", "without a core s"]]
    for name, cpu_s in work.cpu_s.items():
        cells = _cost_cells(work, cpu_s)
        lines.append([name, *cells, f"{cpu_s / total_s:.1%}", f"{work.wait_s[name]:.1f}"])
    group_s = sum(map(work.cpu_of_s, (ARBITER, ROUTER, SHARD)))
    cells = _cost_cells(work, group_s)
    lines.append(["the group together", *cells, f"{group_s / total_s:.1%}", ""])
    return table_text("CPU, all sessions at once", lines)


def _cost_cells(work: Phase, cpu_s: float) -> list[str]:
    per_mib, per_turn = cpu_s * 1e3 / work.mib, cpu_s * 1e3 / len(work.turns)
    return [f"{cpu_s:.2f}", f"{per_mib:.3f}", f"{per_turn:.2f}"]


def _large_table(outcome: Outcome) -> str:
    lines = [
        [
            "turns",
            "MiB each",
            "GiB/s",
            "shard ms/MiB",
            "router",
            "engine",
            "driver",
            "shard without a core",
        ]
    ]
    for name, phase in (("first", outcome.first), ("steady", outcome.steady)):
        lines.append([name, *_large_cells(phase)])
    return table_text("two sessions of one shard with the largest replies", lines)


def _large_cells(phase: Phase) -> list[str]:
    costs = [phase.ms_per_mib(name) for name in (SHARD, ROUTER, ENGINE, DRIVER)]
    return [
        f"{phase.mib / len(phase.turns):,.1f}",
        f"{phase.mib / 1024 / phase.took_s:.2f}",
        *(f"{cost:.3f}" for cost in costs),
        f"{phase.wait_s.get('shard 0', 0.0) / phase.took_s:.0%} of the time",
    ]


def _memory_table(outcome: Outcome) -> str:
    lines = [["memory of the group, MiB", "processes", "files in memory", "sum", "files on disk"]]
    stages = {**outcome.stages, "highest": outcome.heaviest}
    for name, weight in stages.items():
        sizes = (
            weight.pss_bytes,
            weight.memory_file_bytes,
            weight.memory_bytes,
            weight.disk_file_bytes,
        )
        lines.append([name, *(f"{size / MIB:,.1f}" for size in sizes)])
    return table_text("memory", lines)


def _lag_table(outcome: Outcome) -> str:
    lines = [["small requests, ms", "samples", "p50", "p99", "max"]]
    for name, samples in outcome.lags.items():
        figures = (percentile(samples, 0.5), percentile(samples, 0.99), max(samples, default=0.0))
        lines.append([name, f"{len(samples):,}", *(f"{figure:.1f}" for figure in figures)])
    return table_text("lag of a shard", lines)


def _pair_table(outcome: Outcome) -> str:
    lines = [
        ["MiB of a reply", "baseline ms/MiB", "shards ms/MiB", "ratio", "baseline s", "ours s"]
    ]
    lines += [_pair_cells(part) for part in outcome.quarters()]
    return table_text("one session beside the baseline, turn by turn", lines)


def _pair_cells(part: Sequence[Pair]) -> list[str]:
    sizes = [pair.body_bytes / MIB for pair in part]
    return [
        f"{min(sizes):,.1f} to {max(sizes):,.1f}",
        spread_text(spread_of([pair.baseline_ms_per_mib for pair in part]), ".2f"),
        spread_text(spread_of([pair.shard_ms_per_mib for pair in part]), ".2f"),
        spread_text(spread_of([pair.ratio for pair in part]), ".1f"),
        f"{spread_of([pair.baseline_took_s for pair in part]).median:.2f}",
        f"{spread_of([pair.took_s for pair in part]).median:.2f}",
    ]
