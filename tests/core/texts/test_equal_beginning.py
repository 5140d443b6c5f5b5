from array import array

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sessions.core.texts.equal_beginning import equal_count_of


@pytest.mark.parametrize(
    ("ours", "theirs", "count"),
    [
        ("", "", 0),
        ("", "a", 0),
        ("a", "b", 0),
        ("ab", "ab", 2),
        ("ab", "abc", 2),
        ("abcd", "abd", 2),
    ],
)
def test_the_equal_beginning_is_counted(ours: str, theirs: str, count: int):
    assert equal_count_of(ours, theirs) == count
    assert equal_count_of(theirs, ours) == count


@given(st.lists(st.integers(0, 2)), st.lists(st.integers(0, 2)), st.lists(st.integers(0, 2)))
@settings(derandomize=True, deadline=None)
def test_numbers_are_counted_as_one_by_one(same: list[int], ours: list[int], theirs: list[int]):
    one, other = array("I", same + ours), array("I", same + theirs)
    pairs = list(zip(one, other, strict=False))
    wanted = next((index for index, pair in enumerate(pairs) if pair[0] != pair[1]), len(pairs))
    assert equal_count_of(one, other) == wanted
