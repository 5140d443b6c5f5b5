"""Ids that share an array stay what they were, and do share it."""

from __future__ import annotations

from array import array

from hypothesis import given, settings
from hypothesis import strategies as st

from sessions.core.shared_ids import SharedIds


def ids_of(*numbers: int) -> array[int]:
    return array("I", numbers)


def test_ids_that_go_on_share_one_array():
    first = SharedIds(ids_of(1, 2))
    second = first.followed(ids_of(1, 2, 3))
    third = second.followed(ids_of(1, 2, 3, 4))
    assert first._run is second._run is third._run
    assert third.whole() is third.whole()
    assert [list(ids.whole()) for ids in (first, second, third)] == [
        [1, 2],
        [1, 2, 3],
        [1, 2, 3, 4],
    ]
    assert [len(ids) for ids in (first, second, third)] == [2, 3, 4]


def test_a_sibling_does_not_share_and_changes_nothing():
    first = SharedIds(ids_of(1, 2))
    second = first.followed(ids_of(1, 2, 3))
    sibling = first.followed(ids_of(1, 2, 9, 9))
    assert sibling._run is not first._run
    assert [list(ids.whole()) for ids in (first, second, sibling)] == [
        [1, 2],
        [1, 2, 3],
        [1, 2, 9, 9],
    ]


def test_ids_that_lost_a_token_do_not_share():
    first = SharedIds(ids_of(1, 2))
    second = first.followed(ids_of(1, 3, 4))
    assert (list(first.whole()), list(second.whole())) == ([1, 2], [1, 3, 4])


@settings(derandomize=True, deadline=None)
@given(
    st.lists(
        st.tuples(st.integers(0, 5), st.integers(0, 9), st.lists(st.integers(0, 2), max_size=4)),
        max_size=12,
    )
)
def test_ids_stay_what_they_were_whatever_follows(steps: list[tuple[int, int, list[int]]]):
    known = [SharedIds(ids_of())]
    expected: list[list[int]] = [[]]
    for base, kept, more in steps:
        index = base % len(known)
        ids = [*expected[index][:kept], *more]
        known.append(known[index].followed(array("I", ids)))
        expected.append(ids)
        assert [list(shared.whole()) for shared in known] == expected
