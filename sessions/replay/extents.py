"""Ranges of a file: where the bytes of a blob lie, and which bytes nobody needs any more.

`append`, `prefix` and `locate` work on the extents of one blob. `ReferenceCounts` says for each
byte of a file how many blobs lie on it, so that a blob's end frees just what was its own.

Pure: knows no file.

Spec: docs/replay.md#sharing
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Sequence
from typing import NamedTuple


class Extent(NamedTuple):
    """A half-open range of a file, in bytes."""

    start: int
    stop: int

    @property
    def size_bytes(self) -> int:
        """Its length."""
        return self.stop - self.start


def total_bytes(extents: Iterable[Extent]) -> int:
    """Length of all extents together."""
    return sum(stop - start for start, stop in extents)


def append(extents: list[Extent], extent: Extent) -> None:
    """Add an extent behind others, in place; one that touches the last is merged with it."""
    if extent.start == extent.stop:
        return
    if extents and extents[-1].stop == extent.start:
        extents[-1] = Extent(extents[-1].start, extent.stop)
    else:
        extents.append(extent)


def prefix(extents: Iterable[Extent], size_bytes: int) -> list[Extent]:
    """The first bytes of what extents hold; all if they hold less."""
    found: list[Extent] = []
    left = size_bytes
    for start, stop in extents:
        if left <= 0:
            break
        found.append(Extent(start, min(stop, start + left)))
        left -= stop - start
    return found


def ends_of(extents: Iterable[Extent]) -> list[int]:
    """For each extent, how many bytes it and those before it hold; for `locate`."""
    ends: list[int] = []
    total = 0
    for start, stop in extents:
        total += stop - start
        ends.append(total)
    return ends


def locate(extents: Sequence[Extent], ends: Sequence[int], start: int, stop: int) -> list[Extent]:
    """Where bytes [start, stop) of what extents hold lie in the file.

    Args:
        extents: Of one blob.
        ends: Their `ends_of`.
        start: Not negative.
        stop: At most the length of all.
    """
    found: list[Extent] = []
    index = bisect_right(ends, start)
    while start < stop:
        extent, end = extents[index], ends[index]
        size = min(stop, end) - start
        at = extent.stop - (end - start)
        found.append(Extent(at, at + size))
        start += size
        index += 1
    return found


class ReferenceCounts:
    """How many blobs lie on each byte of a file.

    `_at` are the places where the count changes, ascending; `_counts[i]` holds from `_at[i]` to
    the next one. Before the first and after the last the count is 0.
    """

    __slots__ = ("_at", "_counts", "_total_bytes")

    def __init__(self) -> None:
        self._at: list[int] = []
        self._counts: list[int] = []
        self._total_bytes = 0

    @property
    def total_bytes(self) -> int:
        """Bytes on which at least one blob lies."""
        return self._total_bytes

    def add(self, extents: Iterable[Extent]) -> None:
        """A blob lies on these ranges from now on."""
        for extent in extents:
            self._shift(extent, 1)

    def remove(self, extents: Iterable[Extent]) -> list[Extent]:
        """A blob that was added lies on these ranges no longer.

        Returns:
            What no blob lies on any more, ascending within each extent, merged.
        """
        freed: list[Extent] = []
        for extent in extents:
            for part in self._shift(extent, -1):
                append(freed, part)
        return freed

    def gap_around(self, extent: Extent, limit: int) -> Extent:
        """The widest range around an unneeded one on which no blob lies.

        Args:
            extent: No blob lies on it.
            limit: Where it ends at the latest; not within the extent.

        Returns:
            From the end of the last needed byte before it (or 0) to the next needed byte after it
            or the limit.
        """
        index = bisect_right(self._at, extent.start)
        start = self._at[index - 1] if index else 0
        stop = self._at[index] if index < len(self._at) else limit
        return Extent(start, min(stop, limit))

    def last_before(self, place: int) -> int:
        """The end of the last needed byte before a place; 0 if there is none."""
        index = bisect_left(self._at, place)
        if not index:
            return 0
        return place if self._counts[index - 1] else self._at[index - 1]

    def _shift(self, extent: Extent, by: int) -> list[Extent]:
        """Change the counts of a range; returns the parts whose count became 0."""
        if extent.start == extent.stop:
            return []
        low, high = self._split(extent.start), self._split(extent.stop)
        freed: list[Extent] = []
        for index in range(low, high):
            before = self._counts[index]
            self._counts[index] = before + by
            part = Extent(self._at[index], self._at[index + 1])
            if not before:
                self._total_bytes += part.size_bytes
            elif not before + by:
                self._total_bytes -= part.size_bytes
                append(freed, part)
        self._merge(high)
        self._merge(low)
        return freed

    def _split(self, place: int) -> int:
        """Make a place one where the count may change; returns its index."""
        index = bisect_left(self._at, place)
        if index == len(self._at) or self._at[index] != place:
            self._at.insert(index, place)
            self._counts.insert(index, self._counts[index - 1] if index else 0)
        return index

    def _merge(self, index: int) -> None:
        """Drop a place at which the count does not change."""
        if self._counts[index] == (self._counts[index - 1] if index else 0):
            del self._at[index], self._counts[index]
