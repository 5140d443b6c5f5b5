"""The router's view of its shards: who is the least loaded."""

from __future__ import annotations

import pytest

from sessions.router.shards import least_loaded
from tests.support.fake_links import link_of


@pytest.mark.parametrize(
    ("loads", "chosen"),
    [
        ([(0, 0)], 0),
        ([(0, 0), (0, 0)], 0),
        ([(5, 0), (4, 0), (4, 0)], 1),
        ([(5, 0), (4, 2), (5, 1)], 0),
        ([(0, 3), (0, 2), (0, 1)], 2),
    ],
)
def test_the_fewest_sessions_and_newcomers_win_and_then_the_lowest_index(
    loads: list[tuple[int, int]], chosen: int
) -> None:
    links = []
    for index, (sessions, newcomers) in enumerate(loads):
        link = link_of(index)
        link.sessions, link.newcomers = sessions, newcomers
        links.append(link)
    assert least_loaded(links).index == chosen


def test_a_new_link_has_nothing() -> None:
    link = link_of(3)
    assert (link.loans, link.copies, link.sessions, link.newcomers) == ({}, {}, 0, 0)
    assert link.is_alive
    assert link.loans is not link_of(3).loans
