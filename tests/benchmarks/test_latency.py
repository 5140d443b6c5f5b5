"""Medians of the times beside large replies."""

from __future__ import annotations

from benchmarks.latency import Times, lines_of


def test_a_ratio_is_taken_within_a_round_and_the_median_is_told():
    rounds = [
        {
            "idle": Times(p50_ms=1.0, p99_ms=idle_ms),
            "fast readers": Times(p50_ms=2.0, p99_ms=busy_ms),
        }
        for idle_ms, busy_ms in [(2.0, 3.0), (4.0, 16.0), (1.0, 2.0)]
    ]
    idle, fast = lines_of(rounds)
    assert "p99 to idle 1.00 (1.00 1.00 1.00)" in idle
    assert "p99    3.00 ms" in fast
    assert "p99 to idle 2.00 (1.50 4.00 2.00)" in fast
