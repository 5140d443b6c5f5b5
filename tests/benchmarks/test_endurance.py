"""The command line of the endurance runs."""

from __future__ import annotations

from pathlib import Path

import pytest

from benchmarks.endurance import Endurance, main


def test_an_unknown_part_is_refused_before_anything_starts(capsys: pytest.CaptureFixture[str]):
    with pytest.raises(SystemExit):
        main(["deaths", "births"])
    assert "unknown: births" in capsys.readouterr().err


def test_a_small_run_of_stops_ends_with_0(capsys: pytest.CaptureFixture[str]):
    assert main(["stops", "--scale", "0.05"]) == 0
    out = capsys.readouterr().out
    assert "SIGTERM, router+4, drain delay 1 s: exit codes {0: 1}" in out
    assert "0 faults" in out


def test_a_fault_is_told_and_counted(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    endurance = Endurance(tmp_path, 1.0)
    endurance._blame("here", ["one", "two"])
    assert endurance.faults == ["one", "two"]
    assert capsys.readouterr().out == "FAULT here: one\nFAULT here: two\n"
