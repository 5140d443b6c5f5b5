"""The verdicts on reads of records: ratios within a round, each goal on its own side."""

from __future__ import annotations

from benchmarks.records import OURS, RAW, USUAL, Outcome, Reading, render, verdicts_of


def outcome_of(speed: float, cpu_ms: float, extra_mib: int, busy_ms: float) -> Outcome:
    def twice(mib_per_s: float, cpu: float) -> list[Reading]:
        return [Reading(mib_per_s=mib_per_s, cpu_ms_per_mib=cpu)] * 2

    return Outcome(
        size_bytes=1 << 28,
        readings={OURS: twice(speed, cpu_ms), RAW: twice(1000.0, 0.2), USUAL: twice(500.0, 0.3)},
        extra_bytes=extra_mib << 20,
        idle_p99_ms=[10.0, 20.0],
        busy_p99_ms=[busy_ms, busy_ms * 2],
    )


def test_a_read_that_is_good_enough_meets_every_goal():
    assert all(verdict.is_met for verdict in verdicts_of(outcome_of(800.0, 0.5, 16, 20.0)))


def test_each_figure_can_miss_its_own_goal():
    outcome = outcome_of(700.0, 0.6, 17, 21.0)
    assert [verdict.is_met for verdict in verdicts_of(outcome)] == [
        False,
        False,
        True,
        False,
        False,
    ]


def test_every_server_and_every_miss_is_in_the_text():
    text = render(outcome_of(700.0, 0.6, 17, 21.0))
    assert all(server in text for server in (OURS, RAW, USUAL))
    assert text.count("MISSED") == 4
    assert "p99 15.0 ms idle, 31.5 ms beside" in text
