"""What a production run was to do and what came of it: data, figures, verdicts; pure.

Spec: docs/benchmark.md#production-shape
"""

from __future__ import annotations

import dataclasses
import itertools
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from benchmarks.figures import Spread, Verdict, spread_of
from benchmarks.shape import MIB, Shape
from benchmarks.trainer import Turn
from benchmarks.weight import Weight

ARBITER: Final = "arbiter"
DRIVER: Final = "driver"
PROBER: Final = "prober"
SHARD: Final = "shard"
ENGINE: Final = "engine"

IDLE: Final = "idle"
DONE: Final = "all turns done"
HALF: Final = "half of the sessions deleted"
EMPTY: Final = "all sessions deleted"
LAG_WORK: Final = "all sessions at work"
LAG_LARGE: Final = "two of the largest replies at once"

_SHARD_MS_PER_MIB: Final = 0.8
_RATIO: Final = 10.0
_LAG_MS: Final = 50.0
_MEMORY_GIB: Final = 6.0
_SPOOL_GIB: Final = 1.5
_BACK: Final = 1.1
_QUARTERS: Final = 4


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """What to run.

    Attributes:
        shape: Sessions, turns, sizes.
        shards: Of the group.
        engine_procs: Simulated engines.
        think_s: Seconds before an engine answers.
        tool_s: Seconds that a tool takes.
        spool: Folder for replay files; empty keeps replay in memory.
        has_baseline: Whether to compare with a server of the usual kind.
    """

    shape: Shape
    shards: int
    engine_procs: int
    think_s: float
    tool_s: float
    spool: str
    has_baseline: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Phase:
    """Some turns and what they cost.

    Attributes:
        turns: All of them, in the order in which they ended.
        failures: What went wrong, in words; a session's turns end with its first.
        took_s: From the first request to the last reply.
        cpu_s: CPU seconds of each process meanwhile, by name.
        wait_s: Seconds that the main thread of each could have run and had no core.
    """

    turns: Sequence[Turn]
    failures: Sequence[str]
    took_s: float
    cpu_s: Mapping[str, float]
    wait_s: Mapping[str, float]

    @property
    def mib(self) -> float:
        """Replay in all replies."""
        return sum(turn.body_bytes for turn in self.turns) / MIB

    def cpu_of_s(self, prefix: str) -> float:
        """CPU seconds of all processes whose name begins so."""
        return sum(cpu_s for name, cpu_s in self.cpu_s.items() if name.startswith(prefix))

    def ms_per_mib(self, prefix: str) -> float:
        """CPU milliseconds of these processes for each MiB of replay."""
        return self.cpu_of_s(prefix) * 1e3 / self.mib


@dataclass(frozen=True, slots=True, kw_only=True)
class Pair:
    """The same turn on the group and on the baseline.

    Attributes:
        body_bytes: Replay in the engine's reply on the group; the other's differs by a few tokens.
        baseline_body_bytes: Replay in the other one.
        shard_cpu_s: CPU seconds of the shards.
        router_cpu_s: CPU seconds of the router; 0 without one.
        baseline_cpu_s: CPU seconds of the baseline's process.
        took_s: Until the group's reply was whole.
        baseline_took_s: Until the baseline's was.
    """

    body_bytes: int
    baseline_body_bytes: int
    shard_cpu_s: float
    router_cpu_s: float
    baseline_cpu_s: float
    took_s: float
    baseline_took_s: float

    @property
    def shard_ms_per_mib(self) -> float:
        """CPU milliseconds of the shards for each MiB."""
        return self.shard_cpu_s * 1e3 / (self.body_bytes / MIB)

    @property
    def baseline_ms_per_mib(self) -> float:
        """CPU milliseconds of the baseline for each MiB."""
        return self.baseline_cpu_s * 1e3 / (self.baseline_body_bytes / MIB)

    @property
    def ratio(self) -> float:
        """How many times the CPU of the shards the baseline needs for a MiB."""
        return self.baseline_ms_per_mib / self.shard_ms_per_mib


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """Everything that was measured.

    Attributes:
        plan: What was run.
        machine: One line about it.
        loads: Load average (1 minute) before and after.
        strangers: Cores that other processes kept busy while all sessions were at work.
        work: All sessions at once.
        first: The first turns of two sessions of one shard, each with the largest reply but few.
        steady: Their later turns.
        weights: Of the group over all of that.
        stages: Weights at named times, in their order.
        lags: Milliseconds of small requests by what went on, in their order.
        pairs: Turn by turn beside the baseline; empty without one.
    """

    plan: Plan
    machine: str
    loads: Sequence[float]
    strangers: float
    work: Phase
    first: Phase
    steady: Phase
    weights: Sequence[Weight]
    stages: Mapping[str, Weight]
    lags: Mapping[str, Sequence[float]]
    pairs: Sequence[Pair]

    @property
    def heaviest(self) -> Weight:
        """The weighing with the most memory."""
        return max([*self.weights, *self.stages.values()], key=lambda weight: weight.memory_bytes)

    @property
    def failures(self) -> list[str]:
        """What went wrong in all phases."""
        phases = (self.work, self.first, self.steady)
        return [failure for phase in phases for failure in phase.failures]

    def quarters(self) -> list[Sequence[Pair]]:
        """The pairs in four parts, smallest replies first; those with none are left out."""
        count = len(self.pairs)
        edges = [count * part // _QUARTERS for part in range(_QUARTERS + 1)]
        parts = [self.pairs[low:high] for low, high in itertools.pairwise(edges)]
        return [part for part in parts if part]

    def verdicts(self) -> list[Verdict]:
        """Compare with the goals."""
        limit_gib = _SPOOL_GIB if self.plan.spool else _MEMORY_GIB
        before, after = self.stages[IDLE], self.stages[EMPTY]
        found = [
            _at_most("failed turns", 0, len(self.failures)),
            _at_most(
                "steady turns: CPU of a shard, ms per MiB",
                _SHARD_MS_PER_MIB,
                self.steady.ms_per_mib(SHARD),
            ),
            _at_most(
                "two of the largest replies at once: 99th percentile of lag, ms",
                _LAG_MS,
                percentile(self.lags[LAG_LARGE], 0.99),
            ),
            _at_most(
                "highest memory of the group, GiB",
                limit_gib,
                self.heaviest.memory_bytes / (1 << 30),
            ),
            _at_most(
                "memory when all is deleted, x idle",
                _BACK,
                after.memory_bytes / before.memory_bytes,
            ),
        ]
        if self.pairs:
            ratio = Verdict(
                what="largest quarter of replies: CPU of the baseline, x CPU of the shards",
                limit=_RATIO,
                at_least=True,
                got=spread_of([pair.ratio for pair in self.quarters()[-1]]),
            )
            found.insert(2, ratio)
        return found


def percentile(values: Sequence[float], part: float) -> float:
    """The value that this part of all values does not pass; 0 of none."""
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(len(ordered) * part))] if ordered else 0.0


def render_json(outcome: Outcome) -> str:
    """Every sample and verdict as one JSON object."""
    verdicts = [verdict.to_json() for verdict in outcome.verdicts()]
    return json.dumps(dataclasses.asdict(outcome) | {"verdicts": verdicts}, indent=1) + "\n"


def _at_most(what: str, limit: float, got: float) -> Verdict:
    spread = Spread(median=got, low=got, high=got)
    return Verdict(what=what, limit=limit, at_least=False, got=spread)
