"""A production run as a picture: memory over time, and the CPU of a MiB by size of reply.

Spec: docs/benchmark.md#production-shape
"""

from __future__ import annotations

from pathlib import Path
from typing import Final

import matplotlib as mpl
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from benchmarks.outcome import Outcome
from benchmarks.shape import MIB

_GIB: Final = 1 << 30
_INCHES: Final = (11.0, 4.5)


def draw(outcome: Outcome, path: Path) -> None:
    """Write the picture in the format that the file's name ends with."""
    mpl.use("agg")
    figure = Figure(figsize=_INCHES, layout="constrained")
    left, right = figure.subplots(1, 2)
    _draw_memory(left, outcome)
    _draw_cost(right, outcome)
    figure.savefig(path)


def _draw_memory(axes: Axes, outcome: Outcome) -> None:
    begin_s = outcome.weights[0].at_s
    times_s = [weight.at_s - begin_s for weight in outcome.weights]
    processes = [weight.pss_bytes / _GIB for weight in outcome.weights]
    files = [weight.memory_file_bytes / _GIB for weight in outcome.weights]
    axes.stackplot(times_s, processes, files, labels=["processes (PSS)", "files in memory"])
    on_disk = [weight.disk_file_bytes / _GIB for weight in outcome.weights]
    if any(on_disk):
        axes.plot(times_s, on_disk, color="black", linestyle=":", label="files on disk")
    axes.set(xlabel="s", ylabel="GiB", title="the group over time")
    axes.legend(loc="upper left")


def _draw_cost(axes: Axes, outcome: Outcome) -> None:
    if outcome.pairs:
        sizes = [pair.body_bytes / MIB for pair in outcome.pairs]
        axes.plot(sizes, [p.baseline_ms_per_mib for p in outcome.pairs], ".", label="baseline")
        axes.plot(sizes, [p.shard_ms_per_mib for p in outcome.pairs], ".", label="shards")
        axes.set(xlabel="MiB of a reply", ylabel="CPU ms per MiB", yscale="log")
        axes.set_title("one turn")
        axes.legend()
        return
    work = outcome.work
    axes.bar(list(work.cpu_s), [cpu_s * 1e3 / work.mib for cpu_s in work.cpu_s.values()])
    axes.tick_params(axis="x", rotation=30)
    axes.set(ylabel="CPU ms per MiB", title="all sessions at once")
