"""Puts a benchmark's figures into a page, between two marks, so that nobody copies by hand.

Spec: docs/benchmark.md#figures
"""

from __future__ import annotations

from typing import Final

BEGIN: Final = "<!-- figures: begin -->"
END: Final = "<!-- figures: end -->"


def replace_figures(page: str, text: str) -> str:
    """A page with what stands between the marks replaced by a block of text.

    Raises:
        ValueError: The page has not one begin and one end, in this order.
    """
    head, begin, rest = page.partition(BEGIN)
    _, end, tail = rest.partition(END)
    if not begin or not end or BEGIN in rest or END in tail:
        raise ValueError(f"expected {BEGIN} and {END} once each")
    return f"{head}{BEGIN}\n```\n{text}\n```\n{END}{tail}"
