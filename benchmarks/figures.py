"""From the samples of all rounds to medians, ratios and verdicts; pure.

A ratio compares two servers within each round and is the median over the rounds, so that a slow
minute of the machine weighs on both sides of it. Every figure keeps its smallest and largest value.

Spec: docs/benchmark.md#figures
"""

from __future__ import annotations

import enum
import statistics
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Final

from benchmarks.contestants import LONE, MIXED, ROUTED
from benchmarks.load import Run

ROUTER: Final = "router"


class Workload(enum.Enum):
    """What is asked of every server in every round."""

    KEPT = "kept alive"
    NEW = "new connection"
    LARGE = "large reply"


@dataclass(frozen=True, slots=True, kw_only=True)
class Sample:
    """One run against one server.

    Attributes:
        run: The load and its speed.
        cpu_s: CPU seconds of each process in the run, by name.
        load_cpu_s: CPU seconds of the load.
    """

    run: Run
    cpu_s: Mapping[str, float]
    load_cpu_s: float = 0.0

    @property
    def rate(self) -> float:
        """Replies, or GiB of one, in a second."""
        return self.run.count / self.run.duration_s

    @property
    def cpu_per_unit_s(self) -> float:
        """CPU seconds of all processes for one reply, or one GiB."""
        return sum(self.cpu_s.values()) / self.run.count

    @property
    def load_cores(self) -> float:
        """How many cores the load kept busy; near 1, it was what limited the run."""
        return self.load_cpu_s / self.run.duration_s

    def cpu_of_s(self, member: str) -> float:
        """CPU seconds of one process in the whole run; 0 if there is none of this name."""
        return self.cpu_s.get(member, 0.0)


Samples = Mapping[tuple[Workload, str], Sequence[Sample]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Spread:
    """A figure over all rounds."""

    median: float
    low: float
    high: float


def spread_of(values: Sequence[float]) -> Spread:
    """Median, smallest and largest of at least one value."""
    return Spread(median=statistics.median(values), low=min(values), high=max(values))


def ratio_of(
    samples: Samples,
    workload: Workload,
    server: str,
    figure: Callable[[Sample], float],
    beside: str = LONE,
) -> Spread:
    """A figure of one server over that of another, round by round.

    Args:
        samples: Of all rounds, in the same order for every server.
        workload: Of both.
        server: Whose figure is divided.
        figure: What of a sample is compared.
        beside: Whose figure divides.
    """
    pairs = zip(samples[workload, server], samples[workload, beside], strict=True)
    return spread_of([figure(one) / figure(other) for one, other in pairs])


def rate(sample: Sample) -> float:
    """Replies, or GiB, in a second."""
    return sample.rate


def cpu_per_unit(sample: Sample) -> float:
    """CPU seconds of all processes for one reply, or one GiB."""
    return sample.cpu_per_unit_s


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """A goal and what was measured.

    Attributes:
        what: The figure in words.
        limit: What it is compared with.
        at_least: Whether the figure must reach the limit; else it must not pass it.
        got: What was measured.
    """

    what: str
    limit: float
    at_least: bool
    got: Spread

    @property
    def is_met(self) -> bool:
        """Whether the median meets the goal."""
        got = self.got.median
        return got >= self.limit if self.at_least else got <= self.limit

    def line(self) -> str:
        """The figure, its spread, the goal, and whether it is met."""
        sign, got = ">=" if self.at_least else "<=", self.got
        told = "met" if self.is_met else "MISSED"
        return (
            f"{self.what:46} {got.median:7.2f} ({got.low:.2f}-{got.high:.2f})"
            f"  goal {sign} {self.limit:g}: {told}"
        )

    def to_json(self) -> dict[str, object]:
        """All of it."""
        return asdict(self) | {"is_met": self.is_met}


_RATE_GOALS: Final = (
    (Workload.KEPT, ROUTED, 0.85),
    (Workload.KEPT, MIXED, 0.85),
    (Workload.NEW, ROUTED, 0.75),
    (Workload.NEW, MIXED, 0.75),
    (Workload.LARGE, ROUTED, 0.9),
    (Workload.LARGE, MIXED, 0.9),
)
_CPU_GOALS: Final = ((Workload.KEPT, ROUTED, 1.8), (Workload.KEPT, MIXED, 1.8))
_ROUTER_CPU_S: Final = 0.05  # for a whole large reply
_ROUTER_PEAK_MIB: Final = 40.0


def judge(samples: Samples, router_peak_mib: Sequence[float]) -> list[Verdict]:
    """Compare with the goals.

    Args:
        samples: Of all rounds.
        router_peak_mib: Highest resident memory of every router.
    """
    verdicts = [
        Verdict(
            what=f"{workload.value}: speed of {server}, x {LONE}",
            limit=limit,
            at_least=True,
            got=ratio_of(samples, workload, server, rate),
        )
        for workload, server, limit in _RATE_GOALS
    ]
    verdicts += [
        Verdict(
            what=f"{workload.value}: CPU per reply of {server}, x {LONE}",
            limit=limit,
            at_least=False,
            got=ratio_of(samples, workload, server, cpu_per_unit),
        )
        for workload, server, limit in _CPU_GOALS
    ]
    verdicts += [
        Verdict(
            what=f"{Workload.LARGE.value}: CPU seconds of the router in {server}",
            limit=_ROUTER_CPU_S,
            at_least=False,
            got=spread_of([s.cpu_of_s(ROUTER) for s in samples[Workload.LARGE, server]]),
        )
        for server in (ROUTED, MIXED)
    ]
    memory = Verdict(
        what="router: highest resident MiB",
        limit=_ROUTER_PEAK_MIB,
        at_least=False,
        got=spread_of(router_peak_mib),
    )
    return [*verdicts, memory]
