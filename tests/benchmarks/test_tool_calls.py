"""Tests of benchmarks.tool_calls: what is compared with what, and a short run of real servers."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from benchmarks.contestants import LONE, MIXED
from benchmarks.figures import Sample, Workload
from benchmarks.load import CONNECTIONS, LoadError, Run
from benchmarks.tool_calls import PLAIN, SMALL, TOOL, Calls, check_ran, measure_calls, name_of


def calls(**speeds: float) -> Calls:
    """Two rounds; keywords are the speeds of two shards, all lone shards have 100."""
    samples = {}
    for what, key in ((TOOL, "tool"), (PLAIN, "plain")):
        for server, count in ((LONE, 100.0), (MIXED, speeds[key])):
            sample = Sample(
                run=Run(count=count, duration_s=1.0), cpu_s={"shard 0": 1.0}, load_cpu_s=0.25
            )
            for workload in SMALL:
                samples[workload, name_of(what, server)] = [sample, sample]
    return Calls(samples=samples, machine="2 cores", loads=[1.0], strangers=[0.0], episodes={})


@pytest.mark.parametrize("tool", [79.0, 80.0, 90.0])
def test_the_goal_is_the_ratio_of_plain_requests_in_the_same_rounds(tool: float) -> None:
    verdicts = calls(tool=tool, plain=80.0).verdicts()
    assert [(v.limit, v.is_met) for v in verdicts] == [(0.8, tool >= 80.0)] * 2


def test_the_text_has_a_table_for_each_route_and_what_the_load_took() -> None:
    text = calls(tool=90.0, plain=80.0).text()
    assert [line for line in text.splitlines() if line.startswith(("kept", "new"))] == [
        "kept alive: tool calls",
        "kept alive: plain requests",
        "new connection: tool calls",
        "new connection: plain requests",
    ]
    assert "cores busy with the load    0.25 (0.25-0.25)" in text
    assert "0.90 (0.90-0.90)" in text


def test_json_has_every_sample_and_verdict() -> None:
    found = json.loads(json.dumps(calls(tool=90.0, plain=80.0).to_json()))
    assert (len(found["samples"]), len(found["verdicts"])) == (2 * 2 * 2 * 2, 2)


@pytest.mark.parametrize("ran", [99, 100 + CONNECTIONS + 1])
def test_calls_that_were_answered_must_have_run_once(ran: int) -> None:
    for fine in (100, 100 + CONNECTIONS):  # as many as can be under way at the end
        check_ran("x", 100, fine)
    with pytest.raises(LoadError, match=f"x: 100 calls answered, {ran} ran"):
        check_ran("x", 100, ran)


@pytest.mark.skipif(shutil.which("wrk") is None, reason="wrk is not installed")
def test_calls_of_live_episodes_are_answered_by_every_shard(short_folder: Path) -> None:
    found = measure_calls(short_folder, rounds=1, run_s=1)
    assert [len(samples) for samples in found.samples.values()] == [1] * 8
    assert found.episodes[name_of(TOOL, LONE)] == {"shard 0": 61}
    routed = found.samples[Workload.NEW, name_of(TOOL, MIXED)][0]
    assert set(routed.cpu_s) == {"router", "shard 0", "shard 1"}
    assert sum(found.episodes[name_of(TOOL, MIXED)].values()) == 61
