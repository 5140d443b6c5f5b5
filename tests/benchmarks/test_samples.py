"""The usual way gives what we give, and the figures tell what was measured."""

from __future__ import annotations

import base64

import numpy as np
import pytest
import safetensors.numpy

from benchmarks.samples import Outcome, Round, percentile_of, render, usual_samples, verdicts_of
from sessions.core.samples.assembly import Sample, SampleRules, assemble
from tests.support.samples import arrays_of, blob_of, decode, reply_of, rows_for, turn_of

TURNS = [([1, 2, 3], [10, 11]), ([1, 2, 3, 10, 11, 4], [12]), ([1, 2, 3, 10, 11, 4, 12, 5], [13])]


def test_both_ways_give_the_same_tensors():
    records, turns = [], []
    for prompt, sampled in TURNS:
        rows = rows_for(len(prompt) + len(sampled) - 1, 25, 10).tobytes()
        text = base64.b64encode(rows).decode()
        log_probs = [-float(token) for token in sampled]
        response = reply_of(sampled, log_probs, routed_experts=text)
        records.append({"request": {"input_ids": prompt}, "response": response})
        replay = [("routed_experts", blob_of(rows))]
        turns.append(turn_of(prompt, sampled, replay=replay, layers=25))
    sample = assemble(turns, SampleRules(max_trim_count=0), decode)
    assert isinstance(sample, Sample)
    usual = safetensors.numpy.load(usual_samples(records))
    ours = arrays_of(sample)
    assert {name.removesuffix(".0") for name in usual} == set(ours)
    for name, array in usual.items():
        assert np.array_equal(array, ours[name.removesuffix(".0")])


def test_no_records_have_no_samples():
    with pytest.raises(ValueError, match="no records"):
        usual_samples([])


def test_a_percentile_is_a_value():
    assert percentile_of([], 0.99) == 0.0
    assert percentile_of([3.0, 1.0, 2.0], 0.5) == 2.0
    assert percentile_of([3.0, 1.0, 2.0], 1.0) == 3.0


def outcome_of(busy_ms: float) -> Outcome:
    one = Round(
        wall_s=0.5,
        cpu_s=0.25,
        usual_wall_s=5.0,
        usual_cpu_s=4.0,
        idle_ms=[1.0],
        busy_ms=[busy_ms],
    )
    return Outcome(records_bytes=450 << 20, reply_bytes=100 << 20, rounds=[one, one])


@pytest.mark.parametrize(("busy_ms", "is_met"), [(49.0, True), (51.0, False)])
def test_the_goals_are_held(busy_ms: float, *, is_met: bool):
    lag, cpu, wall = verdicts_of(outcome_of(busy_ms))
    assert lag.is_met is is_met
    assert (cpu.got.median, wall.got.median) == (16.0, 10.0)


def test_the_text_tells_sizes_and_verdicts():
    text = render(outcome_of(51.0))
    assert "records of 450 MiB, samples of 100 MiB" in text
    assert "  2.50 CPU ms/MiB" in text
    assert "MISSED" in text
