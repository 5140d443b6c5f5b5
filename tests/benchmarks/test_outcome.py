"""From what was measured to figures and verdicts."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from benchmarks.outcome import (
    DONE,
    EMPTY,
    HALF,
    IDLE,
    LAG_LARGE,
    LAG_WORK,
    Outcome,
    Pair,
    Phase,
    Plan,
    percentile,
    render_json,
)
from benchmarks.outcome_text import render_text
from benchmarks.shape import MIB, Shape
from benchmarks.trainer import Turn
from benchmarks.weight import Weight

GIB = 1 << 30


def turn(mib: float) -> Turn:
    return Turn(number=0, tokens=100, body_bytes=int(mib * MIB), begun_s=1.0, took_s=0.5)


def phase(shard_s: float = 0.3, failures: tuple[str, ...] = ()) -> Phase:
    cpu_s = {"router": 0.1, "shard 0": shard_s, "shard 1": shard_s, "engine 0": 0.4, "driver": 0.2}
    return Phase(
        turns=[turn(500), turn(500)],
        failures=failures,
        took_s=2.0,
        cpu_s=cpu_s,
        wait_s=dict.fromkeys(cpu_s, 0.2),
    )


def weight(pss_gib: float, files_gib: float = 0.0, disk_gib: float = 0.0) -> Weight:
    return Weight(
        at_s=0.0,
        pss_bytes=int(pss_gib * GIB),
        memory_file_bytes=int(files_gib * GIB),
        disk_file_bytes=int(disk_gib * GIB),
    )


def pair(baseline_s: float, mib: float = 100) -> Pair:
    return Pair(
        body_bytes=int(mib * MIB),
        baseline_body_bytes=int(mib * MIB),
        shard_cpu_s=0.05,
        router_cpu_s=0.001,
        baseline_cpu_s=baseline_s,
        took_s=0.2,
        baseline_took_s=1.0,
    )


GOOD = Outcome(
    plan=Plan(
        shape=Shape(sessions=2, turns=1, final_body_bytes=500 * MIB),
        shards=2,
        engine_procs=1,
        think_s=0.0,
        tool_s=0.0,
        spool="",
        has_baseline=True,
    ),
    machine="a machine",
    loads=[0.1, 2.0],
    strangers=0.1,
    work=phase(),
    first=phase(),
    steady=phase(),
    weights=[weight(0.2), weight(1.0, 4.0), weight(2.0, 1.0)],
    stages={
        IDLE: weight(0.2),
        DONE: weight(0.9, 3.9),
        HALF: weight(0.5, 2.0),
        EMPTY: weight(0.21),
    },
    lags={IDLE: [1.0], LAG_WORK: [1.0, 90.0], LAG_LARGE: [1.0] * 99 + [49.0]},
    pairs=[pair(0.1), pair(0.2), pair(0.3), pair(0.6), pair(0.7)],
)


def verdicts_of(outcome: Outcome) -> dict[str, bool]:
    return {verdict.what.split(":")[0]: verdict.is_met for verdict in outcome.verdicts()}


def test_cpu_is_shared_out_over_the_replay():
    assert phase().mib == 1000
    assert phase().ms_per_mib("shard") == pytest.approx(0.6)
    assert phase().ms_per_mib("shard 1") == pytest.approx(0.3)
    assert phase().ms_per_mib("nobody") == 0


def test_a_pair_compares_the_same_number_of_bytes():
    uneven = replace(pair(1.0), baseline_body_bytes=50 * MIB)
    assert pair(1.0).ratio == pytest.approx(20)
    assert uneven.ratio == pytest.approx(40)


@pytest.mark.parametrize(("count", "sizes"), [(0, []), (1, [1]), (3, [1, 1, 1]), (9, [2, 2, 2, 3])])
def test_quarters_hold_every_pair_once(count: int, sizes: list[int]):
    pairs = [pair(number + 1) for number in range(count)]
    parts = replace(GOOD, pairs=pairs).quarters()
    assert [each for part in parts for each in part] == pairs
    assert [len(part) for part in parts] == sizes


def test_the_heaviest_is_the_one_with_most_in_processes_and_files():
    assert GOOD.heaviest == weight(1.0, 4.0)
    brief = replace(GOOD, stages={**GOOD.stages, DONE: weight(3.0, 3.0)})
    assert brief.heaviest == weight(3.0, 3.0)


def test_every_goal_is_met_when_all_is_well():
    assert set(verdicts_of(GOOD).values()) == {True}
    assert len(GOOD.verdicts()) == 6


@pytest.mark.parametrize(
    ("outcome", "missed"),
    [
        (replace(GOOD, steady=phase(shard_s=0.41)), "steady turns"),
        (replace(GOOD, pairs=[pair(0.4)]), "largest quarter of replies"),
        (replace(GOOD, lags={**GOOD.lags, LAG_LARGE: [1.0] * 98 + [51.0] * 2}), LAG_LARGE),
        (replace(GOOD, weights=[weight(2.0, 4.1)]), "highest memory of the group, GiB"),
        (
            replace(GOOD, stages={**GOOD.stages, EMPTY: weight(0.23)}),
            "memory when all is deleted, x idle",
        ),
        (replace(GOOD, work=phase(failures=("a turn got 502",))), "failed turns"),
    ],
)
def test_a_goal_is_missed_when_its_figure_is_beyond(outcome: Outcome, missed: str):
    found = verdicts_of(outcome)
    assert [what for what, is_met in found.items() if not is_met] == [missed]


def test_a_spool_has_a_lower_limit_and_its_files_on_disk_do_not_count():
    plan = replace(GOOD.plan, spool="somewhere")
    stages = {IDLE: weight(0.2), EMPTY: weight(0.2)}
    light = replace(GOOD, plan=plan, stages=stages, weights=[weight(1.4, 0.0, 9.0)])
    heavy = replace(GOOD, plan=plan, stages=stages, weights=[weight(1.4, 0.2)])
    assert verdicts_of(light)["highest memory of the group, GiB"]
    assert not verdicts_of(heavy)["highest memory of the group, GiB"]


def test_without_a_baseline_there_is_no_ratio():
    alone = replace(GOOD, pairs=[])
    assert "largest quarter of replies" not in verdicts_of(alone)
    assert "baseline" not in render_text(alone)


@pytest.mark.parametrize(("part", "value"), [(0.0, 1), (0.5, 3), (0.99, 4), (1.0, 4)])
def test_a_percentile_is_one_of_the_values(part: float, value: float):
    assert percentile([4, 1, 3, 2], part) == value


def test_a_percentile_of_nothing_is_zero():
    assert percentile([], 0.5) == 0.0


def test_the_text_tells_speed_cpu_memory_lag_and_goals():
    text = render_text(GOOD)
    told = [" ".join(line.split()) for line in text.splitlines()]
    for line in (
        "2 1.0 2.0 1.0 0.49 0.50 0.50 0",
        "shard 0 0.30 0.300 150.00 23.1% 0.2",
        "the group together 0.70 0.700 350.00 53.8%",
        "steady 500.0 0.49 0.600 0.100 0.400 0.200 10% of the time",
        "highest 1,024.0 4,096.0 5,120.0 0.0",
        f"{LAG_LARGE} 100 1.0 49.0 49.0",
        "100.0 to 100.0 1.00 (1.00-1.00) 0.50 (0.50-0.50) 2.0 (2.0-2.0) 1.00 0.20",
    ):
        assert line in told, text


def test_json_holds_every_sample_and_verdict():
    found = json.loads(render_json(GOOD))
    assert len(found["work"]["turns"]) == 2
    assert found["stages"][IDLE]["pss_bytes"] == weight(0.2).pss_bytes
    assert all(verdict["is_met"] for verdict in found["verdicts"])
