"""The report of a benchmark: a text of tables, and one JSON object with every sample.

Spec: docs/benchmark.md#figures
"""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from benchmarks.contestants import LONE
from benchmarks.figures import (
    ROUTER,
    Sample,
    Samples,
    Spread,
    Verdict,
    Workload,
    cpu_per_unit,
    rate,
    ratio_of,
    spread_of,
)
from benchmarks.usage import Memory

_MIB: Final = 1 << 20


@dataclass(frozen=True, slots=True, kw_only=True)
class Report:
    """Everything that was measured.

    Attributes:
        samples: Of all rounds.
        memory: Of each process at the end, by server and process name.
        machine: One line about it.
        loads: Load average (1 minute) before each round and after the last.
        strangers: Of each round, how many cores others than servers and load kept busy.
        large_bytes: Size of the large reply.
        verdicts: Goals and what was measured.
    """

    samples: Samples
    memory: Mapping[str, Mapping[str, Memory]]
    machine: str
    loads: Sequence[float]
    strangers: Sequence[float]
    large_bytes: int
    verdicts: Sequence[Verdict]


def render_text(report: Report) -> str:
    """The tables, for a terminal and for docs/benchmark.md."""
    blocks = [
        conditions_text(report.machine, report.loads, report.strangers),
        _small_table_of(report, Workload.KEPT),
        _small_table_of(report, Workload.NEW),
        _large_table(report),
        _memory_table(report),
        verdict_table(report.verdicts),
    ]
    return "\n\n".join(blocks)


def render_json(report: Report) -> str:
    """Every sample and verdict as one JSON object."""
    found = {
        "machine": report.machine,
        "loads": list(report.loads),
        "strangers": list(report.strangers),
        "large_bytes": report.large_bytes,
        "samples": samples_json(report.samples),
        "memory": {
            server: {member: dataclasses.asdict(memory) for member, memory in members.items()}
            for server, members in report.memory.items()
        },
        "verdicts": [verdict.to_json() for verdict in report.verdicts],
    }
    return json.dumps(found, indent=1) + "\n"


def samples_json(samples_of: Samples) -> list[dict[str, object]]:
    """Every sample as JSON can say it."""
    return [
        {"workload": workload.value, "server": server, "round": number}
        | dataclasses.asdict(sample.run)
        | {"cpu_s": dict(sample.cpu_s), "load_cpu_s": sample.load_cpu_s}
        for (workload, server), samples in samples_of.items()
        for number, sample in enumerate(samples)
    ]


def conditions_text(machine: str, loads: Sequence[float], strangers: Sequence[float]) -> str:
    """The machine, the rounds, and what else went on; see `Report`."""
    lines = [
        machine,
        f"rounds                      {len(strangers)}, interleaved; medians (low-high)",
        f"load average                {_listed(loads)}",
        f"cores busy with other work  {_listed(strangers)}",
    ]
    return "\n".join(lines)


def _listed(values: Sequence[float]) -> str:
    return " ".join(f"{value:.1f}" for value in values)


def _servers(report: Report, workload: Workload) -> list[str]:
    return [server for found, server in report.samples if found is workload]


def spread_text(spread: Spread, form: str) -> str:
    """A median with its lowest and highest value."""
    return f"{spread.median:{form}} ({spread.low:{form}}-{spread.high:{form}})"


def _front_of(sample: Sample) -> str:
    """The process before the application, if there is one."""
    return next((name for name in (ROUTER, "nginx") if name in sample.cpu_s), "")


def _beside(
    samples: Samples,
    workload: Workload,
    server: str,
    figure: Callable[[Sample], float],
    lone: str = LONE,
) -> str:
    ratio = ratio_of(samples, workload, server, figure, lone)
    return "1" if server == lone else spread_text(ratio, ".2f")


def small_table(
    title: str,
    samples_of: Samples,
    workload: Workload,
    servers: Sequence[str],
    lone: str = LONE,
) -> str:
    """Speed and cost of small requests, with a row for each server.

    Args:
        title: Above the table.
        samples_of: Of all rounds.
        workload: Which of them.
        servers: The rows, in this order.
        lone: The server that the others are compared with.
    """
    lines = [
        ["server", "replies/s", "x lone", "CPU us/reply", "front", "app", "x lone", "p50", "p99 ms"]
    ]
    for server in servers:
        samples = samples_of[workload, server]
        fronts = [s.cpu_of_s(_front_of(s)) / s.run.count * 1e6 for s in samples]
        alls = [s.cpu_per_unit_s * 1e6 for s in samples]
        apps = [total - front for total, front in zip(alls, fronts, strict=True)]
        lines.append(
            [
                server,
                spread_text(spread_of([s.rate for s in samples]), ",.0f"),
                _beside(samples_of, workload, server, rate, lone),
                spread_text(spread_of(alls), ".0f"),
                f"{spread_of(fronts).median:.0f}" if _front_of(samples[0]) else "-",
                f"{spread_of(apps).median:.0f}",
                _beside(samples_of, workload, server, cpu_per_unit, lone),
                f"{spread_of([s.run.p50_ms for s in samples]).median:.1f}",
                f"{spread_of([s.run.p99_ms for s in samples]).median:.1f}",
            ]
        )
    return table_text(title, lines)


def _small_table_of(report: Report, workload: Workload) -> str:
    title = f"{workload.value}: 1 KiB in, 1 KiB out"
    return small_table(title, report.samples, workload, _servers(report, workload))


def _large_table(report: Report) -> str:
    workload = Workload.LARGE
    lines = [["server", "GiB/s", "x lone", "CPU s/GiB", "front CPU s"]]
    for server in _servers(report, workload):
        samples = report.samples[workload, server]
        front = spread_of([s.cpu_of_s(_front_of(s)) for s in samples])
        lines.append(
            [
                server,
                spread_text(spread_of([s.rate for s in samples]), ".2f"),
                _beside(report.samples, workload, server, rate),
                spread_text(spread_of([s.cpu_per_unit_s for s in samples]), ".2f"),
                spread_text(front, ".3f") if _front_of(samples[0]) else "-",
            ]
        )
    return table_text(f"{workload.value}: {report.large_bytes / _MIB:,.0f} MiB", lines)


def _memory_table(report: Report) -> str:
    lines = [["server", "process", "RSS MiB", "peak MiB"]]
    for server, members in report.memory.items():
        for member, memory in members.items():
            figures = (memory.now_bytes / _MIB, memory.peak_bytes / _MIB)
            lines.append([server, member, *(f"{figure:.1f}" for figure in figures)])
    return table_text("memory at the end", lines)


def verdict_table(verdicts: Sequence[Verdict]) -> str:
    """Goals and what was measured."""
    lines = [["goal", "", "measured", ""]]
    for verdict in verdicts:
        limit = f"{'>=' if verdict.at_least else '<='} {verdict.limit:g}"
        mark = "met" if verdict.is_met else "MISSED"
        lines.append([verdict.what, limit, spread_text(verdict.got, ".3g"), mark])
    return table_text("goals", lines)


def table_text(title: str, lines: Sequence[Sequence[str]]) -> str:
    """Columns as wide as their widest cell, the first at the left, the others at the right."""
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    rows = []
    for cells in lines:
        first, *others = (
            cell.ljust(width) if index == 0 else cell.rjust(width)
            for index, (cell, width) in enumerate(zip(cells, widths, strict=True))
        )
        rows.append("  ".join([first, *others]).rstrip())
    return "\n".join([title, *(f"  {row}" for row in rows)])
