"""Token ids of checkpoints, each of which begins as another one: nothing of them is kept twice.

A checkpoint has all tokens of its prompt and reply. Kept checkpoint by checkpoint that would take
the square of a session's length, so one that goes on from another keeps what is new and refers to
the other for the rest. Any number may go on from the same one, and one that nobody refers to any
more takes only its own part along.

Must not know what a checkpoint is.

Spec: docs/sessions.md#shared-texts
"""

from __future__ import annotations

from array import array
from dataclasses import dataclass

from sessions.core.texts.equal_beginning import equal_count_of


@dataclass(frozen=True, slots=True, eq=False)
class Row:
    """Where some ids lie.

    Attributes:
        own: The last of them.
        start: How many come before those.
        before: Where the ones before lie, the first of its ids; None if there are none.
    """

    own: array[int]
    start: int = 0
    before: Row | None = None


class SharedIds:
    """Some token ids; they never change.

    Attributes:
        row: Where they lie.
    """

    __slots__ = ("_count", "row")

    def __init__(self, ids: array[int]) -> None:
        """Share with nobody.

        Args:
            ids: Kept, not copied; not to be changed.
        """
        self.row = Row(ids)
        self._count = len(ids)

    def __len__(self) -> int:
        return self._count

    def whole(self) -> array[int]:
        """The ids; not to be changed. A copy if they are shared."""
        return self.row.own if self.row.before is None else self.part(0, self._count)

    def part(self, start: int, stop: int) -> array[int]:
        """A copy of ids [start, stop); costs what they are, and a step for each row.

        Args:
            start: Index of the first, 0 or more.
            stop: The one after the last, at most as many as there are.
        """
        pieces: list[array[int]] = []
        row: Row | None = self.row
        while row is not None and stop > start:
            if stop > row.start:
                pieces.append(row.own[max(0, start - row.start) : stop - row.start])
                stop = row.start
            row = row.before
        found = array("I")
        for piece in reversed(pieces):
            found.extend(piece)
        return found

    def followed(self, ids: array[int]) -> SharedIds:
        """Other ids; they share those that they begin with.

        Args:
            ids: Kept or copied; not to be changed.
        """
        same = equal_count_of(self.whole(), ids)
        row: Row | None = self.row
        # A row of which nothing is shared is not kept alive.
        while row is not None and same <= row.start:
            row = row.before
        made = SharedIds(ids)
        if row is not None:
            made.row = Row(own=ids[same:], start=same, before=row)
        return made

    def has_beginning_of(self, other: SharedIds, count: int) -> bool:
        """Whether the first ids are those of others.

        Args:
            other: The others; has as many or more.
            count: How many ids.
        """
        if self.row.before is other.row and count <= self.row.start:
            return True
        return self.part(0, min(count, self._count)) == other.part(0, count)
