"""The table of cases of episode tools is whole: each has a row, and each row names tests."""

from __future__ import annotations

import re
from typing import Final

from tests.support.pages import ROOT, rows_of, section_of

# Numbers that are missing were never given.
ROUTING: Final = {*range(1, 44)} - {8, 21, 28, 37, 41}
CASES: Final = [*(f"R-T{n}" for n in sorted(ROUTING)), *(f"R-E{n}" for n in range(1, 8))]
TEST: Final = re.compile(r"`tests/\w+::test_\w+`")


def rows() -> list[list[str]]:
    page = (ROOT / "docs" / "cases.md").read_text()
    return [row for row in rows_of(section_of(page, "episode-tools")) if row[0].startswith("R-")]


def test_every_case_of_episode_tools_has_one_row_in_order():
    assert [row[0] for row in rows()] == CASES


def test_every_case_of_episode_tools_names_a_test():
    assert [row[0] for row in rows() if not TEST.search(row[-1])] == []
