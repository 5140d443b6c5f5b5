"""With how many equal elements two sequences begin; long ones are compared by halves.

Must not know what they are.

Spec: docs/sessions.md#shared-texts
"""

from __future__ import annotations

from array import array
from typing import TypeVar

_Cut = TypeVar("_Cut", str, "array[int]")


def equal_count_of(ours: _Cut, theirs: _Cut) -> int:
    """How many elements, from the first on, two sequences share.

    Costs a few comparisons of whole slices, not one of each element.

    Args:
        ours: One of them.
        theirs: The other.
    """
    longest = min(len(ours), len(theirs))
    if ours[:longest] == theirs[:longest]:
        return longest
    low, high = 0, longest  # the first low ones are equal, the first high ones are not
    while high - low > 1:
        middle = (low + high) // 2
        if ours[low:middle] == theirs[low:middle]:
            low = middle
        else:
            high = middle
    return low
