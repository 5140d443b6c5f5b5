"""Tests of benchmarks.report: every figure is in the text, and every sample in the JSON."""

from __future__ import annotations

import json

import pytest

from benchmarks.contestants import LONE, MIXED, ROUTED
from benchmarks.figures import Sample, Workload, judge
from benchmarks.load import Run
from benchmarks.report import Report, render_json, render_text
from benchmarks.usage import Memory


@pytest.fixture
def report() -> Report:
    lone = Sample(run=Run(count=1000.0, duration_s=1.0, p50_ms=1.5), cpu_s={"shard 0": 0.05})
    routed = Sample(
        run=Run(count=500.0, duration_s=1.0, p50_ms=3.5),
        cpu_s={"router": 0.01, "shard 0": 0.04},
    )
    samples = {
        (workload, server): [made, made]
        for workload in Workload
        for server, made in ((LONE, lone), (ROUTED, routed), (MIXED, routed))
    }
    memory = {ROUTED: {"router": Memory(now_bytes=20 << 20, peak_bytes=30 << 20)}}
    return Report(
        samples=samples,
        memory=memory,
        machine="2 cores",
        loads=[0.5, 0.75, 1.0],
        strangers=[0.25, 0.0],
        large_bytes=1 << 30,
        verdicts=judge(samples, [30.0]),
    )


def row_of(text: str, title: str, server: str) -> list[str]:
    """The cells of a server's row in the table under a title."""
    table = text[text.index(title) :].partition("\n\n")[0]
    (row,) = [line for line in table.splitlines() if line.strip().startswith(f"{server}  ")]
    return row.strip().removeprefix(server).split()


def test_text_tells_speed_cost_and_share_of_the_router(report: Report) -> None:
    cells = row_of(render_text(report), "kept alive:", ROUTED)
    assert cells == [
        *("500", "(500-500)", "0.50", "(0.50-0.50)"),
        *("100", "(100-100)", "20", "80", "2.00", "(2.00-2.00)", "3.5", "0.0"),
    ]


def test_text_has_no_front_where_there_is_none(report: Report) -> None:
    assert row_of(render_text(report), "kept alive:", LONE)[3:7] == ["50", "(50-50)", "-", "50"]


def test_text_marks_goals_met_and_missed(report: Report) -> None:
    lines = render_text(report).splitlines()
    speed = next(line for line in lines if f"speed of {ROUTED}" in line)
    memory = next(line for line in lines if "highest resident" in line)
    assert speed.endswith("MISSED")
    assert memory.endswith("met")


def test_text_tells_load_average_and_memory(report: Report) -> None:
    text = render_text(report)
    assert "load average                0.5 0.8 1.0" in text
    assert row_of(text, "memory", ROUTED) == ["router", "20.0", "30.0"]


def test_text_has_no_trailing_space(report: Report) -> None:
    assert all(line == line.rstrip() for line in render_text(report).splitlines())


def test_json_has_every_sample_and_verdict(report: Report) -> None:
    found = json.loads(render_json(report))
    assert len(found["samples"]) == 2 * 3 * 3
    assert found["samples"][0] == {
        "workload": "kept alive",
        "server": LONE,
        "round": 0,
        "count": 1000.0,
        "duration_s": 1.0,
        "p50_ms": 1.5,
        "p99_ms": 0.0,
        "cpu_s": {"shard 0": 0.05},
        "load_cpu_s": 0.0,
    }
    assert [v["is_met"] for v in found["verdicts"]].count(False) > 0
