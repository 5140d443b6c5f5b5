"""One production run: what happens in which order, and what is read before and after.

Spec: docs/benchmark.md#production-shape
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import sys
import time
from collections.abc import Awaitable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import uvloop

from benchmarks.figures import ROUTER
from benchmarks.load import LoadError
from benchmarks.outcome import (
    DONE,
    DRIVER,
    EMPTY,
    HALF,
    IDLE,
    LAG_LARGE,
    LAG_WORK,
    PROBER,
    SHARD,
    Outcome,
    Pair,
    Phase,
    Plan,
)
from benchmarks.rounds import describe_machine
from benchmarks.stand import (
    Baseline,
    Engines,
    Probing,
    open_baseline,
    open_engines,
    open_replay_group,
)
from benchmarks.trainer import Conversation, Talk, converse, create_on_shards, open_conversations
from benchmarks.usage import read_busy_s, read_cpu_of, read_cpu_s, read_wait_s
from benchmarks.weight import Weight, WeightWatch, read_weight
from tests.support.group import RunningGroup

LARGE_SESSIONS: Final = 2
LARGE_TURNS: Final = 10
_WARM_TARGETS: Final = (400, 800)
_SETTLE_S: Final = 1.0  # for memory that is freed, and for samples of an idle group
_TRIMMED_S: Final = 13.0  # a shard gives its heap back within ten seconds, at a beat
_WEIGH_S: Final = 1.0
_AFTERMATH_S: Final = 0.02  # what a server does after its reply belongs to the turn
_SPOOL_VARIABLE: Final = "SESSIONS_SPOOL_DIR"


def run_plan(plan: Plan, folder: Path) -> Outcome:
    """Start everything, run, stop everything.

    Args:
        plan: What to run.
        folder: Empty and with a short path, for sockets and logs.

    Raises:
        LoadError: A server did not answer as it must.
        GroupError: The group did not start.
    """
    env = {_SPOOL_VARIABLE: plan.spool} if plan.spool else {}
    with contextlib.ExitStack() as stack:
        options = plan.shape.engine_options(plan.think_s)
        engines = stack.enter_context(open_engines(folder, plan.engine_procs, options))
        baseline = None
        if plan.has_baseline:
            baseline = stack.enter_context(open_baseline(folder, engines.urls[0]))
        group = stack.enter_context(open_replay_group(folder, plan.shards, engines.urls, env))
        return uvloop.run(_ProductionRun(plan, engines, group, baseline).run())


@dataclass(frozen=True, slots=True, kw_only=True)
class _Loaded:
    """What the part with the prober brought."""

    work: Phase
    strangers: float
    first: Phase
    steady: Phase
    stages: Mapping[str, Weight]
    windows: Mapping[str, tuple[float, float]]


class _ProductionRun:
    """See the module docstring."""

    def __init__(
        self, plan: Plan, engines: Engines, group: RunningGroup, baseline: Baseline | None
    ) -> None:
        self._plan = plan
        self._group = group
        self._baseline = baseline
        self._pids = {**group.pids, **engines.pids, DRIVER: os.getpid()}

    async def run(self) -> Outcome:
        load_before = os.getloadavg()[0]
        await self._warm_up()
        shards = list(range(self._plan.shards))
        empty = await create_on_shards(self._group.address, shards, self._plan.shards)
        with Probing(self._group.address, empty) as probing:
            self._pids[PROBER] = probing.pid
            with WeightWatch(self._group.pids, _WEIGH_S) as watch:
                loaded = await self._load()
            samples = probing.stop()
        del self._pids[PROBER]
        lags = {
            name: [ms for at_s, ms in samples if begin_s <= at_s <= end_s]
            for name, (begin_s, end_s) in loaded.windows.items()
        }
        pairs = await self._compare(self._baseline) if self._baseline is not None else []
        return Outcome(
            plan=self._plan,
            machine=describe_machine(),
            loads=[load_before, os.getloadavg()[0]],
            strangers=loaded.strangers,
            work=loaded.work,
            first=loaded.first,
            steady=loaded.steady,
            weights=watch.weights,
            stages=loaded.stages,
            lags=lags,
            pairs=pairs,
        )

    async def _warm_up(self) -> None:
        """Turns on every shard, so that what is loaded at first use is there; so too elsewhere."""
        shards = list(range(self._plan.shards))
        ids = await create_on_shards(self._group.address, shards, self._plan.shards)
        async with self._conversations(_WARM_TARGETS, session_ids=ids) as found:
            await self._finish(found)
        if self._baseline is not None:
            where, row_bytes = self._baseline.address, self._plan.shape.row_bytes
            async with open_conversations(where, _WARM_TARGETS, row_bytes, count=1) as found:
                await self._finish(found)

    async def _finish(self, conversations: Sequence[Conversation]) -> None:
        talk = await converse(conversations)
        if talk.failures:
            raise LoadError("; ".join(talk.failures))
        for conversation in conversations:
            await conversation.delete()

    def _conversations(
        self, targets: Sequence[int], *, count: int = 0, session_ids: Sequence[str] = ()
    ) -> contextlib.AbstractAsyncContextManager[list[Conversation]]:
        row_bytes = self._plan.shape.row_bytes
        return open_conversations(
            self._group.address, targets, row_bytes, count=count, session_ids=session_ids
        )

    async def _load(self) -> _Loaded:
        """All sessions, their deletion, and two large ones."""
        shape = self._plan.shape
        windows, stages = {}, {}
        begin_s = time.monotonic()
        await asyncio.sleep(_SETTLE_S)
        stages[IDLE] = self._weigh()
        windows[IDLE] = (begin_s, time.monotonic())
        async with self._conversations(shape.targets(), count=shape.sessions) as found:
            _say(f"{shape.sessions} sessions of {shape.turns} turns")
            busy_s, start = read_busy_s(), read_cpu_of(self._pids)
            begin_s = time.monotonic()
            work = await self._phase(converse(found, tool_s=self._plan.tool_s))
            end_s = time.monotonic()
            spent_s = sum(read_cpu_of(self._pids).values()) - sum(start.values())
            strangers = max(0.0, read_busy_s() - busy_s - spent_s) / (end_s - begin_s)
            windows[LAG_WORK] = (begin_s, end_s)
            stages[DONE] = self._weigh()
            half = len(found) // 2
            stages[HALF] = await self._delete(found[:half])
            stages[EMPTY] = await self._delete(found[half:])
        _say("two of the largest replies at once")
        begin_s = time.monotonic()
        first, steady = await self._large()
        windows[LAG_LARGE] = (begin_s, time.monotonic())
        return _Loaded(
            work=work,
            strangers=strangers,
            first=first,
            steady=steady,
            stages=stages,
            windows=windows,
        )

    def _weigh(self) -> Weight:
        return read_weight(self._group.pids.values())

    async def _delete(self, conversations: Sequence[Conversation]) -> Weight:
        for conversation in conversations:
            await conversation.delete()
        await asyncio.sleep(_TRIMMED_S)
        return self._weigh()

    async def _phase(self, work: Awaitable[Talk]) -> Phase:
        before, waited = read_cpu_of(self._pids), self._waits()
        begin_s = time.monotonic()
        talk = await work
        if not talk.turns:
            raise LoadError("; ".join(talk.failures))
        took_s = time.monotonic() - begin_s
        await asyncio.sleep(_AFTERMATH_S)
        after, waited_more = read_cpu_of(self._pids), self._waits()
        return Phase(
            turns=talk.turns,
            failures=talk.failures,
            took_s=took_s,
            cpu_s={name: after[name] - before[name] for name in before},
            wait_s={name: waited_more[name] - waited[name] for name in waited},
        )

    def _waits(self) -> dict[str, float]:
        return {name: read_wait_s(pid) for name, pid in self._pids.items()}

    async def _large(self) -> tuple[Phase, Phase]:
        """Two sessions of one shard: their first turns, then the steady ones."""
        ids = await create_on_shards(self._group.address, [0] * LARGE_SESSIONS, self._plan.shards)
        targets = self._plan.shape.late_targets(LARGE_TURNS)
        async with self._conversations(targets, session_ids=ids) as found:
            first = await self._phase(converse(found, turns=1))
            steady = await self._phase(converse(found))
            for conversation in found:
                await conversation.delete()
        return first, steady

    async def _compare(self, baseline: Baseline) -> list[Pair]:
        """One session here and one there, turn by turn."""
        shape = self._plan.shape
        _say(f"{shape.turns} turns here and on the baseline, one by one")
        targets = shape.targets()
        pairs = []
        async with (
            self._conversations(targets, count=1) as ours,
            open_conversations(baseline.address, targets, shape.row_bytes, count=1) as theirs,
        ):
            while ours[0].turns_left:
                here = await self._phase(converse(ours, turns=1))
                before_s = read_cpu_s(baseline.pid)
                talk = await converse(theirs, turns=1)
                await asyncio.sleep(_AFTERMATH_S)
                if here.failures or talk.failures:
                    raise LoadError("; ".join([*here.failures, *talk.failures]))
                (there,) = talk.turns
                pair = Pair(
                    body_bytes=here.turns[0].body_bytes,
                    baseline_body_bytes=there.body_bytes,
                    shard_cpu_s=here.cpu_of_s(SHARD),
                    router_cpu_s=here.cpu_of_s(ROUTER),
                    baseline_cpu_s=read_cpu_s(baseline.pid) - before_s,
                    took_s=here.turns[0].took_s,
                    baseline_took_s=there.took_s,
                )
                pairs.append(pair)
            await ours[0].delete()
            await theirs[0].delete()
        return pairs


def _say(what: str) -> None:
    print(what, file=sys.stderr, flush=True)
