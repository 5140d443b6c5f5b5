"""The tables of cases of sessions and of episode tools are whole: a row for each, with tests."""

from __future__ import annotations

import re
from typing import Final

from tests.support.pages import ROOT, rows_of, section_of

# Numbers that are missing were never given.
ROUTING: Final = {*range(1, 44)} - {8, 21, 28, 37, 41}
CASES: Final = [*(f"R-T{n}" for n in sorted(ROUTING)), *(f"R-E{n}" for n in range(1, 8))]
SESSIONS: Final = [f"C-T{n}" for n in sorted({*range(47, 72)} - {55, 58, 63})]
TEST: Final = re.compile(r"`tests/\w+::test_\w+`")


def rows(section: str = "episode-tools", prefix: str = "R-") -> list[list[str]]:
    page = (ROOT / "docs" / "cases.md").read_text()
    return [row for row in rows_of(section_of(page, section)) if row[0].startswith(prefix)]


def test_every_case_of_episode_tools_has_one_row_in_order():
    assert [row[0] for row in rows()] == CASES


def test_every_case_of_episode_tools_names_a_test():
    assert [row[0] for row in rows() if not TEST.search(row[-1])] == []


def test_every_case_of_sessions_has_one_row_in_order_and_names_a_test():
    found = rows("sessions", "C-")
    assert [row[0] for row in found] == SESSIONS
    assert [row[0] for row in found if not TEST.search(row[-1])] == []
