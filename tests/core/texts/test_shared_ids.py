"""Ids that share stay what they were, and nothing of them is kept twice."""

from __future__ import annotations

import gc
from array import array

from hypothesis import given, settings
from hypothesis import strategies as st

from sessions.core.texts.shared_ids import Row, SharedIds


def ids_of(*numbers: int) -> array[int]:
    return array("I", numbers)


def kept_by(*known: SharedIds) -> int:
    """Ids that these keep in all, each row once."""
    rows: dict[int, int] = {}
    for ids in known:
        row: Row | None = ids.row
        while row is not None:
            rows[id(row)] = len(row.own)
            row = row.before
    return sum(rows.values())


def test_ids_that_go_on_keep_what_is_new():
    first = SharedIds(ids_of(1, 2))
    second = first.followed(ids_of(1, 2, 3))
    third = second.followed(ids_of(1, 2, 3, 4))
    told = [list(ids.whole()) for ids in (first, second, third)]
    assert told == [[1, 2], [1, 2, 3], [1, 2, 3, 4]]
    assert [len(ids) for ids in (first, second, third)] == [2, 3, 4]
    assert kept_by(first, second, third) == 4


def test_siblings_share_with_the_one_that_they_go_on_from():
    first = SharedIds(ids_of(1, 2))
    siblings = [first.followed(ids_of(1, 2, number)) for number in range(100)]
    assert [list(ids.whole()) for ids in siblings] == [[1, 2, number] for number in range(100)]
    assert kept_by(first, *siblings) == 102


def test_a_session_whose_every_turn_is_rolled_back_keeps_every_id_once():
    head = SharedIds(array("I", range(100)))
    for turn in range(1, 50):
        dropped = head.followed(array("I", [*head.whole(), 7, 7, 7]))
        head = head.followed(array("I", [*head.whole(), turn]))
        del dropped
    assert len(head) == 149
    assert kept_by(head) == 149


def test_ids_that_lost_their_last_token_share_the_others():
    first = SharedIds(ids_of(1, 2))
    second = first.followed(ids_of(1, 3, 4))
    assert (list(first.whole()), list(second.whole())) == ([1, 2], [1, 3, 4])
    assert kept_by(first, second) == 4


def test_ids_that_have_none_of_their_own_row_do_not_keep_it():
    first = SharedIds(array("I", range(10)))
    second = first.followed(array("I", [*range(10), *range(50, 90)]))
    third = second.followed(array("I", [*range(10), 3]))
    assert third.row.before is first.row
    assert kept_by(third) == 11


def test_ids_that_begin_with_nothing_in_common_share_nothing():
    assert SharedIds(ids_of(1, 2)).followed(ids_of(2, 1)).row.before is None
    assert SharedIds(ids_of()).followed(ids_of(1)).row.before is None


def test_a_part_of_the_ids_is_found_across_rows():
    first = SharedIds(ids_of(0, 1, 2))
    second = first.followed(ids_of(0, 1, 2, 3))
    third = second.followed(ids_of(0, 1, 2, 3, 4, 5))
    for start in range(7):
        for stop in range(7):
            assert list(third.part(start, stop)) == list(range(start, stop))


def test_a_very_long_chain_is_read_and_freed_without_recursion():
    row = Row(ids_of(0))
    for number in range(1, 100_000):
        row = Row(own=ids_of(number), start=number, before=row)
    ids = SharedIds(array("I", range(100_000)))
    ids.row = row
    assert list(ids.part(0, 3)) == [0, 1, 2]
    del ids, row
    gc.collect()


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
    for ours, plain in zip(known, expected, strict=True):
        for other, other_plain in zip(known, expected, strict=True):
            for count in range(len(other_plain) + 1):
                same = plain[:count] == other_plain[:count]
                assert ours.has_beginning_of(other, count) == same
