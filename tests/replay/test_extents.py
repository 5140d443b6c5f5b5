"""Ranges of a file, held against sets of offsets."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from sessions.replay.extents import (
    Extent,
    ReferenceCounts,
    append,
    ends_of,
    locate,
    prefix,
    total_bytes,
)

SIZE = 24
LAW = settings(derandomize=True, deadline=None, max_examples=300)
EXTENT = st.tuples(st.integers(0, SIZE), st.integers(0, SIZE)).map(lambda t: Extent(*sorted(t)))
CHAIN = st.lists(EXTENT.filter(lambda e: e.size_bytes > 0), max_size=6)


def places(extents: list[Extent]) -> list[int]:
    return [place for start, stop in extents for place in range(start, stop)]


def test_extents_that_touch_are_merged_and_empty_ones_left_out():
    found: list[Extent] = []
    for extent in (Extent(4, 4), Extent(0, 2), Extent(2, 5), Extent(7, 9)):
        append(found, extent)
    assert found == [Extent(0, 5), Extent(7, 9)]


@LAW
@given(CHAIN, st.integers(0, 6 * SIZE))
def test_a_prefix_holds_the_first_bytes_in_order(chain: list[Extent], size: int):
    assert places(prefix(chain, size)) == places(chain)[:size]


@LAW
@given(CHAIN, st.data())
def test_bytes_are_located_where_they_lie(chain: list[Extent], data: st.DataObject):
    total = total_bytes(chain)
    start = data.draw(st.integers(0, total))
    stop = data.draw(st.integers(start, total))
    assert places(locate(chain, ends_of(chain), start, stop)) == places(chain)[start:stop]


@LAW
@given(st.lists(CHAIN, max_size=6), st.data())
def test_counts_free_what_nobody_needs_and_nothing_else(
    blobs: list[list[Extent]], data: st.DataObject
):
    counts = ReferenceCounts()
    for blob in blobs:
        counts.add(blob)
    left = list(blobs)
    while left:
        needed = {place for blob in left for place in places(blob)}
        assert counts.total_bytes == len(needed)
        place = data.draw(st.integers(0, SIZE + 1))
        assert counts.last_before(place) == max((p + 1 for p in needed if p < place), default=0)
        blob = left.pop(data.draw(st.integers(0, len(left) - 1)))
        freed = counts.remove(blob)
        still = {place for other in left for place in places(other)}
        assert sorted(places(freed)) == sorted(set(places(blob)) - still)
        for part in freed:
            gap = counts.gap_around(part, SIZE)
            assert not still & set(range(*gap))
            assert gap.start == 0 or gap.start - 1 in still
            assert gap.stop == SIZE or gap.stop in still
    assert counts.total_bytes == 0
    assert not counts._at
