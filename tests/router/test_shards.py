"""The router's view of its shards: who is the least loaded."""

from __future__ import annotations

import pytest

from sessions.lending.place import Place
from sessions.router.shards import least_loaded
from tests.support.fake_links import link_of


@pytest.mark.parametrize(
    ("loads", "chosen"),
    [
        ([(0, 0)], 0),
        ([(0, 0), (0, 0)], 0),
        ([(5, 0), (4, 0), (4, 0)], 1),
        ([(5, 0), (4, 9), (5, 1)], 1),
        ([(1, 3), (1, 2), (1, 1)], 2),
    ],
)
def test_the_smallest_load_wins_and_then_who_was_chosen_least_recently(
    loads: list[tuple[int, int]], chosen: int
) -> None:
    links = []
    for index, (count, turn) in enumerate(loads):
        link = link_of(index)
        link.load.last_turn = turn
        for _ in range(count):
            link.load.arrive()
        links.append(link)
    assert least_loaded(links).index == chosen


def test_a_new_link_has_nothing() -> None:
    link = link_of(3)
    assert (link.loans, link.copies, link.load.count) == ({}, {}, 0)
    assert link.is_alive
    assert link.loans is not link_of(3).loans
    assert link.load is not link_of(3).load
    assert link.place == Place(shard=3)
    assert link.newcomers_place == Place(shard=3, is_newcomer=True)
