"""Tests of benchmarks.tool_growth: what counts as a fault. A small run is in test_tools."""

from __future__ import annotations

import json
from collections import Counter
from dataclasses import replace

from benchmarks.tool_growth import Growth, Mark


def mark(done: int, *, claims: int = 0, mib: float = 10.0, descriptors: int = 17) -> Mark:
    weight = {"router": mib, "shard 0": mib}
    return Mark(
        done=done,
        claims=claims,
        pss_mib=weight,
        rss_mib=weight,
        descriptors={"router": 25, "shard 0": descriptors},
    )


def growth(*marks: Mark) -> Growth:
    return Growth(
        came=Counter({"right": 80}),
        ended=Counter({"right": 10}),
        shards=Counter({0: 50, 1: 30}),
        marks=list(marks) or [mark(0, mib=1.0), mark(5), mark(10)],
    )


def test_right_and_flat_is_no_fault_however_small_the_start_was() -> None:
    assert growth().faults() == []


def test_calls_and_ends_that_were_wrong_are_faults() -> None:
    found = growth()
    found.came["410"] += 2
    found.ended["wrong"] += 1
    assert found.faults() == ["calls: 2 x 410", "ends: 1 x wrong"]


def test_claims_that_are_left_are_a_fault() -> None:
    found = growth(mark(0), mark(5, claims=3), mark(10, claims=-1))
    assert found.faults() == ["3 claims after 5", "-1 claims after 10"]
    found.kept_claims = 3
    assert found.faults() == ["-1 claims after 10"]


def test_descriptors_that_are_left_are_a_fault() -> None:
    assert growth(mark(0), mark(5), mark(10, descriptors=18)).faults() == [
        "shard 0: 18 descriptors, 17 after 5"
    ]


def test_memory_that_grew_is_a_fault() -> None:
    assert growth(mark(0), mark(5), mark(10, mib=10.4)).faults() == []
    assert growth(mark(0), mark(5), mark(10, mib=11.0)).faults() == ["memory grew to 1.100 x"]


def test_text_and_json_tell_of_every_mark() -> None:
    found = growth(mark(0), mark(5), replace(mark(10), claims=7))
    text = found.text()
    assert "calls                              80 right" in text
    assert "answered                           50 at shard 0, 30 at shard 1" in text
    assert "  10           7  10.0 (10.0)  10.0 (10.0)" in text
    told = json.loads(json.dumps(found.to_json()))
    assert [found["done"] for found in told["marks"]] == [0, 5, 10]
