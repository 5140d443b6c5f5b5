"""The command line, and one whole run in small."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from benchmarks.production import FULL, QUICK, main
from benchmarks.production_run import LARGE_SESSIONS, LARGE_TURNS


@pytest.mark.parametrize(
    "arguments", [["--bytes-per-token", "1500"], ["--bytes-per-token", "0"], ["--turns", "1"]]
)
def test_what_cannot_be_run_is_refused(arguments: list[str], capsys: pytest.CaptureFixture[str]):
    with pytest.raises(SystemExit):
        main(arguments)
    assert arguments[0] in capsys.readouterr().err


def test_the_quick_run_moves_a_twentieth_of_the_bytes():
    assert FULL.total_bytes() / QUICK.total_bytes() == pytest.approx(20, rel=0.05)


def test_a_run_in_small_measures_every_part(tmp_path: Path):
    told, picture = tmp_path / "told.json", tmp_path / "picture.svg"
    page = tmp_path / "page.md"
    page.write_text("<!-- production: begin --><!-- production: end -->")
    code = main(
        [
            *("--sessions=3", "--turns=4", "--final-body-mib=0.4", "--baseline"),
            *(f"--json={told}", f"--picture={picture}", f"--docs={page}"),
        ]
    )
    assert code == 0
    found = json.loads(told.read_text())
    assert len(found["work"]["turns"]) == 3 * 4
    assert len(found["first"]["turns"]) == LARGE_SESSIONS
    assert len(found["steady"]["turns"]) == LARGE_SESSIONS * (LARGE_TURNS - 1)
    assert len(found["pairs"]) == 4
    last = max(turn["body_bytes"] for turn in found["work"]["turns"])
    assert last == pytest.approx(0.4 * (1 << 20), rel=0.1)
    assert set(found["work"]["cpu_s"]) >= {"router", "shard 0", "shard 1", "engine 0", "driver"}
    assert min(map(len, found["lags"].values())) > 0
    assert picture.read_bytes().startswith(b"<?xml")
    assert "one session beside the baseline" in page.read_text()
