"""Puts a benchmark's figures into a page, between two marks, so that nobody copies by hand.

Spec: docs/benchmark.md#figures
"""

from __future__ import annotations

from typing import Final

FIGURES: Final = "figures"


def marks_of(name: str) -> tuple[str, str]:
    """The two marks of a block of figures."""
    return f"<!-- {name}: begin -->", f"<!-- {name}: end -->"


def replace_figures(page: str, text: str, name: str = FIGURES) -> str:
    """A page with what stands between the marks replaced by a block of text.

    Args:
        page: Its text.
        text: What shall stand there.
        name: Of the marks.

    Raises:
        ValueError: The page has not one begin and one end, in this order.
    """
    opening, closing = marks_of(name)
    head, begin, rest = page.partition(opening)
    _, end, tail = rest.partition(closing)
    if not begin or not end or opening in rest or closing in tail:
        raise ValueError(f"expected {opening} and {closing} once each")
    return f"{head}{opening}\n```\n{text}\n```\n{closing}{tail}"
