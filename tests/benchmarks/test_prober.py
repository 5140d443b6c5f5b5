"""What a slow reply stands for."""

from __future__ import annotations

import pytest

from benchmarks.prober import INTERVAL_S, samples_of


@pytest.mark.parametrize("took_s", [0.0, 0.001, INTERVAL_S])
def test_a_reply_within_the_interval_is_one_sample(took_s: float):
    assert list(samples_of(5.0, took_s)) == [(5.0, took_s * 1e3)]


def test_a_slow_reply_stands_for_the_questions_that_could_not_be_asked():
    found = list(samples_of(5.0, INTERVAL_S * 2.5))
    assert [at_s for at_s, _ in found] == pytest.approx([5.0, 5.02, 5.04])
    assert [ms for _, ms in found] == pytest.approx([50.0, 30.0, 10.0])
