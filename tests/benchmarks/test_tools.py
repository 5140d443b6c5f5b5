"""The parts of benchmarks.tools in small, through real groups."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from benchmarks.tools import main


@pytest.mark.parametrize("part", [[], ["throughput"]])
def test_a_part_that_is_none_is_refused(part: list[str]) -> None:
    with pytest.raises(SystemExit):
        main(part)


@pytest.mark.timeout(300)
@pytest.mark.parametrize(("part", "most_claims"), [("episodes", 0), ("sessions", 200)])
def test_a_few_members_leave_nothing(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], part: str, most_claims: int
) -> None:
    told = tmp_path / "told.json"
    arguments = ["--count", "40", "--batch", "20", "--connections", "4", "--json", str(told)]
    main([part, *arguments])  # so few weigh little: its exit code tells of memory
    out = capsys.readouterr().out
    assert "calls                              320 right\n" in out
    assert "ended                              40 right\n" in out
    marks = json.loads(told.read_text())["marks"]
    assert [mark["done"] for mark in marks] == [0, 10, 20, 30, 40]
    assert all(0 <= mark["claims"] <= most_claims for mark in marks)
    assert marks[-1]["descriptors"] == marks[1]["descriptors"]


@pytest.mark.timeout(300)
def test_without_claims_agents_see_what_they_must_not(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    told = tmp_path / "told.json"
    assert main(["unclaimed", "--small", "--json", str(told)]) == 0
    assert "direct calls" in capsys.readouterr().out
    found = json.loads(told.read_text())
    assert found["on"]["direct"] == {"right": 320}
    assert found["off"]["direct"]["410 episode_not_running"] > 100


@pytest.mark.timeout(300)
def test_a_repeat_beside_a_burner_has_no_fault(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["repeats", "--rounds", "1", "--burners", "1"]) == 0
    assert "1 rounds beside 1 burners: 0 of them with a fault" in capsys.readouterr().out
