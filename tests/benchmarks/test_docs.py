"""Tests of benchmarks.docs."""

from __future__ import annotations

import pytest

from benchmarks.docs import FIGURES, marks_of, replace_figures

BEGIN, END = marks_of(FIGURES)


def test_replace_puts_the_text_between_the_marks() -> None:
    page = f"before\n{BEGIN}\nold\n{END}\nafter\n"
    assert replace_figures(page, "new") == f"before\n{BEGIN}\n```\nnew\n```\n{END}\nafter\n"


def test_replace_can_be_done_again() -> None:
    page = replace_figures(f"{BEGIN}{END}", "one")
    assert replace_figures(page, "two") == replace_figures(f"{BEGIN}{END}", "two")


@pytest.mark.parametrize(
    "page", ["", BEGIN, END, f"{END}{BEGIN}", f"{BEGIN}{BEGIN}{END}", f"{BEGIN}{END}{END}"]
)
def test_replace_refuses_a_page_without_one_pair_of_marks(page: str) -> None:
    with pytest.raises(ValueError, match="once each"):
        replace_figures(page, "text")


def test_replace_leaves_figures_of_another_name_alone() -> None:
    begin, end = marks_of("other")
    page = f"{BEGIN}old{END}{begin}older{end}"
    assert replace_figures(page, "new", "other") == f"{BEGIN}old{END}{begin}\n```\nnew\n```\n{end}"
