"""Tests of benchmarks.figures: medians, ratios and goals on made-up samples."""

from __future__ import annotations

from collections.abc import Mapping

import pytest

from benchmarks.contestants import LONE, MIXED, ROUTED
from benchmarks.figures import (
    Sample,
    Samples,
    Spread,
    Workload,
    cpu_per_unit,
    judge,
    rate,
    ratio_of,
    spread_of,
)
from benchmarks.load import Run


def sample(count: float, duration_s: float = 1.0, **cpu_s: float) -> Sample:
    return Sample(run=Run(count=count, duration_s=duration_s), cpu_s=cpu_s or {"shard 0": 1.0})


def all_samples(changed: Mapping[tuple[Workload, str], list[Sample]] | None = None) -> Samples:
    """Two rounds in which every server does the same, and no router costs anything."""
    same: dict[tuple[Workload, str], list[Sample]] = {
        (workload, server): [sample(100.0), sample(200.0)]
        for workload in Workload
        for server in (LONE, ROUTED, MIXED)
    }
    return same | dict(changed or {})


def test_spread_is_the_median_between_lowest_and_highest() -> None:
    assert spread_of([3.0, 1.0, 9.0]) == Spread(median=3.0, low=1.0, high=9.0)


def test_rate_is_replies_over_the_time_of_the_run() -> None:
    assert sample(100.0, 4.0).rate == 25.0


def test_cpu_per_unit_adds_all_processes() -> None:
    assert sample(10.0, **{"router": 1.0, "shard 0": 2.0}).cpu_per_unit_s == pytest.approx(0.3)


def test_cpu_of_an_absent_process_is_zero() -> None:
    assert sample(1.0).cpu_of_s("router") == 0.0


def test_ratio_compares_within_each_round_when_the_machine_changes_pace() -> None:
    samples = {
        (Workload.KEPT, LONE): [sample(100.0), sample(1000.0), sample(10.0)],
        (Workload.KEPT, ROUTED): [sample(90.0), sample(900.0), sample(9.0)],
    }
    found = ratio_of(samples, Workload.KEPT, ROUTED, rate)
    assert (found.low, found.median, found.high) == pytest.approx((0.9, 0.9, 0.9))


def test_ratio_of_cpu_compares_the_cost_of_a_reply() -> None:
    samples = {
        (Workload.KEPT, LONE): [sample(100.0, **{"shard 0": 1.0})],
        (Workload.KEPT, ROUTED): [sample(50.0, **{"router": 0.5, "shard 0": 0.5})],
    }
    assert ratio_of(samples, Workload.KEPT, ROUTED, cpu_per_unit).median == pytest.approx(2.0)


def test_ratio_is_refused_when_a_round_is_missing() -> None:
    samples = {
        (Workload.KEPT, LONE): [sample(1.0), sample(1.0)],
        (Workload.KEPT, ROUTED): [sample(1.0)],
    }
    with pytest.raises(ValueError, match=r"zip\(\)"):
        ratio_of(samples, Workload.KEPT, ROUTED, rate)


def test_every_goal_is_met_when_routing_costs_nothing() -> None:
    assert all(verdict.is_met for verdict in judge(all_samples(), [30.0]))


@pytest.mark.parametrize(
    ("key", "worse"),
    [
        ((Workload.KEPT, ROUTED), sample(84.0)),
        ((Workload.KEPT, MIXED), sample(84.0)),
        ((Workload.NEW, ROUTED), sample(74.0)),
        ((Workload.NEW, MIXED), sample(74.0)),
        ((Workload.LARGE, ROUTED), sample(89.0)),
        ((Workload.LARGE, MIXED), sample(89.0)),
        ((Workload.KEPT, ROUTED), sample(100.0, **{"router": 0.9, "shard 0": 1.0})),
        ((Workload.KEPT, MIXED), sample(100.0, **{"router": 0.9, "shard 0": 1.0})),
        ((Workload.LARGE, ROUTED), sample(100.0, **{"router": 0.06, "shard 0": 1.0})),
    ],
)
def test_exactly_one_goal_is_missed_when_one_figure_is_worse(
    key: tuple[Workload, str], worse: Sample
) -> None:
    lone = [sample(100.0)]
    samples = dict.fromkeys(all_samples(), lone) | {key: [worse]}
    assert [verdict.is_met for verdict in judge(samples, [30.0])].count(False) == 1


def test_the_memory_goal_is_missed_when_a_router_grows() -> None:
    missed = [v.what for v in judge(all_samples(), [41.0]) if not v.is_met]
    assert missed == ["router: highest resident MiB"]


def test_a_goal_is_met_on_its_very_edge() -> None:
    edge = {(Workload.KEPT, ROUTED): [sample(85.0), sample(170.0)]}
    assert all(verdict.is_met for verdict in judge(all_samples(edge), [40.0]))
