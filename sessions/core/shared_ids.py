"""Token ids of checkpoints, each of which begins as the one before: one array for a row of them.

A checkpoint has all tokens of its prompt and reply. Kept turn by turn that would take the square of
a session's length, so a checkpoint holds a length and a run, and the run the longest array.

Must not know what a checkpoint is.

Spec: docs/sessions.md#shared-texts
"""

from __future__ import annotations

from array import array


class _Run:
    """What checkpoints share; its array is replaced by longer ones with the same beginning."""

    __slots__ = ("ids",)

    def __init__(self, ids: array[int]) -> None:
        self.ids = ids


class SharedIds:
    """Some token ids; they never change."""

    __slots__ = ("_count", "_run")

    def __init__(self, ids: array[int]) -> None:
        """Share with nobody yet.

        Args:
            ids: Kept, not copied; not to be changed.
        """
        self._run = _Run(ids)
        self._count = len(ids)

    def __len__(self) -> int:
        return self._count

    def whole(self) -> array[int]:
        """The ids; not to be changed. Copied if others have more."""
        ids = self._run.ids
        return ids if len(ids) == self._count else ids[: self._count]

    def followed(self, ids: array[int]) -> SharedIds:
        """Other ids; they share with these if they begin with these and are the first to do so.

        Args:
            ids: Kept, not copied; not to be changed.
        """
        made = SharedIds(ids)
        is_last = len(self._run.ids) == self._count
        if is_last and ids[: self._count] == self._run.ids:
            self._run.ids = ids
            made._run = self._run
        return made
