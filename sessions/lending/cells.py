"""State cells: one aligned 8-byte word per slot in shared memory (lending rule 16).

The shard that holds a lent connection writes `generation << 8 | state`; the router reads the word
when that shard is dead, to know whether the client already got bytes of a reply. A word of
another generation says nothing.

Spec: docs/lending.md#state-cell
"""

from __future__ import annotations

import enum
import mmap


class CellState(enum.IntEnum):
    """How far the reply of an exchange is."""

    AWAITING = 0
    REPLYING = 1
    COMPLETE = 2


class Cells:
    """The words of all slots of a group; made before the forks."""

    def __init__(self, slots: int) -> None:
        """Make the mapping.

        Args:
            slots: How many slot numbers there are.
        """
        self._map = mmap.mmap(-1, max(slots, 1) * 8)
        self._words = memoryview(self._map).cast("Q")

    def mark(self, slot: int, generation: int, state: CellState) -> None:
        """Write the state of the exchange that holds the slot's current generation."""
        self._words[slot] = generation << 8 | state

    def read(self, slot: int, generation: int) -> CellState:
        """How far the reply of that generation is; AWAITING if the word is of another one."""
        word = self._words[slot]
        return CellState(word & 0xFF) if word >> 8 == generation else CellState.AWAITING
