"""A slot: one client connection as its front sees it, a state machine without I/O.

A slot is in HEAD (idle or reading a head), LENT (one shard has it for one exchange), ENDING (the
last bytes are out, input is being discarded) or CLOSED. `TRANSITIONS` is the whole machine. Each
loan of a slot number has a generation that never restarts, so a late word about an earlier loan
is known by its number and ignored. A slot also remembers which shards hold a parked copy of the
connection, because a loan to one of these needs no descriptor.

Nothing here reads a socket, a clock or a channel: callers feed events and act on the answer.

Spec: docs/lending.md#slots
"""

from __future__ import annotations

import enum
from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

from sessions.errors.unseen import LocalProtocolError
from sessions.lending.cells import CellState

_NO_SHARD: Final = -1


class SlotState(enum.Enum):
    """Where a connection stands."""

    __hash__ = object.__hash__  # Enum's own is Python code, run at every look-up in a table

    HEAD = enum.auto()
    LENT = enum.auto()
    ENDING = enum.auto()
    CLOSED = enum.auto()


class SlotEvent(enum.Enum):
    """What just happened to a connection."""

    __hash__ = object.__hash__

    LENT_OUT = enum.auto()
    BACK_KEPT = enum.auto()
    BACK_LOST = enum.auto()
    REFUSED = enum.auto()
    DIED_AWAITING = enum.auto()
    DIED_REPLYING = enum.auto()
    DIED_COMPLETE = enum.auto()
    LAST_REPLY = enum.auto()
    CLOSED = enum.auto()


# The whole machine. A pair that is not listed is a bug in the caller.
TRANSITIONS: Final[Mapping[tuple[SlotState, SlotEvent], SlotState]] = MappingProxyType(
    {
        (SlotState.HEAD, SlotEvent.LENT_OUT): SlotState.LENT,
        (SlotState.HEAD, SlotEvent.LAST_REPLY): SlotState.ENDING,
        (SlotState.HEAD, SlotEvent.CLOSED): SlotState.CLOSED,
        (SlotState.LENT, SlotEvent.BACK_KEPT): SlotState.HEAD,
        (SlotState.LENT, SlotEvent.BACK_LOST): SlotState.ENDING,
        (SlotState.LENT, SlotEvent.REFUSED): SlotState.HEAD,
        (SlotState.LENT, SlotEvent.DIED_AWAITING): SlotState.HEAD,
        (SlotState.LENT, SlotEvent.DIED_REPLYING): SlotState.ENDING,
        (SlotState.LENT, SlotEvent.DIED_COMPLETE): SlotState.HEAD,
        (SlotState.LENT, SlotEvent.CLOSED): SlotState.CLOSED,
        (SlotState.ENDING, SlotEvent.CLOSED): SlotState.CLOSED,
    }
)


# An enum member costs 70 ns to name (Python 3.11); every exchange passes these three.
_LENT: Final = SlotState.LENT
_LENT_OUT: Final = SlotEvent.LENT_OUT
_BACK_KEPT: Final = SlotEvent.BACK_KEPT


class Slot:
    """Tracks one connection; see the module docstring.

    Attributes:
        state: Where the connection stands now; only `feed` and its callers here move it.
        number: Index of the slot's state cell, reused after the connection closed.
        generation: Of the current or last loan; 0 before the number's first.
    """

    __slots__ = ("_parked", "_shard", "generation", "number", "state")

    def __init__(self, number: int, generation: int) -> None:
        self.number = number
        self.generation = generation
        self.state = SlotState.HEAD
        self._shard = _NO_SHARD
        self._parked = 0  # bit i: shard i holds a copy

    @property
    def parked_shards(self) -> list[int]:
        """Shards that hold a copy of the connection, ascending."""
        return [i for i in range(self._parked.bit_length()) if self._parked >> i & 1]

    def is_lent_to(self, shard: int) -> bool:
        """Whether this shard has the connection now."""
        return self._shard == shard

    def feed(self, event: SlotEvent) -> SlotState:
        """Move to the next state.

        Raises:
            LocalProtocolError: The event cannot happen in this state, which is kept.
        """
        try:
            state = self.state = TRANSITIONS[self.state, event]
        except KeyError:
            raise LocalProtocolError(f"{event.name} in state {self.state.name}") from None
        if state is not _LENT:
            self._shard = _NO_SHARD
        return state

    def lend(self, shard: int) -> bool:
        """Start the next loan.

        Returns:
            Whether the descriptor must go with it (the shard holds no parked copy).

        Raises:
            LocalProtocolError: The slot is not in HEAD.
        """
        self.feed(_LENT_OUT)
        self._shard = shard
        self.generation += 1
        bit = 1 << shard
        needs_descriptor = not self._parked & bit
        self._parked |= bit
        return needs_descriptor

    def is_current(self, shard: int, generation: int) -> bool:
        """Whether a word of this shard about this generation is about the loan of now."""
        return self._shard == shard and self.generation == generation

    def take_back(self, shard: int, *, kept: bool) -> SlotState:
        """End the loan; without `kept` the shard's copy is gone and so is the connection.

        Raises:
            LocalProtocolError: The slot is not lent.
        """
        if not kept:
            self._parked &= ~(1 << shard)
        return self.feed(_BACK_KEPT if kept else SlotEvent.BACK_LOST)

    def take_refusal(self, shard: int) -> None:
        """End a loan of which the shard executed nothing because it has no copy.

        Raises:
            LocalProtocolError: The slot is not lent.
        """
        self._parked &= ~(1 << shard)
        self.feed(SlotEvent.REFUSED)

    def drop_copy(self, shard: int) -> bool:
        """A shard wishes to be rid of its parked copy.

        Returns:
            Whether it may: it holds one, and the connection is not lent to it.
        """
        bit = 1 << shard
        if self._shard == shard or not self._parked & bit:
            return False
        self._parked &= ~bit
        return True

    def judge_death(self, shard: int, cell: CellState) -> SlotEvent | None:
        """A shard died: forget its copy, and say what becomes of a loan that it had.

        Args:
            shard: The dead one.
            cell: What it last wrote about the current generation.

        Returns:
            None if the slot was not lent to it; else the event that happened. The state has
            moved: HEAD after DIED_AWAITING (an answer is due) and DIED_COMPLETE (nothing is),
            ENDING after DIED_REPLYING (the reply must be cut).
        """
        self._parked &= ~(1 << shard)
        if self._shard != shard:
            return None
        event = {
            CellState.AWAITING: SlotEvent.DIED_AWAITING,
            CellState.REPLYING: SlotEvent.DIED_REPLYING,
            CellState.COMPLETE: SlotEvent.DIED_COMPLETE,
        }[cell]
        self.feed(event)
        return event

    def close(self) -> list[int]:
        """End for ever; returns the shards that must be told to drop their copy."""
        self.feed(SlotEvent.CLOSED)
        holders, self._parked = self.parked_shards, 0
        return holders


class SlotTable:
    """The slot numbers of one front: which are free, and the last generation of each."""

    def __init__(self, count: int) -> None:
        """Make the numbers 0 to count - 1, all free."""
        self._free = list(range(count - 1, -1, -1))
        self._generations = [0] * count

    @property
    def has_free(self) -> bool:
        """Whether another connection fits."""
        return bool(self._free)

    @property
    def taken_count(self) -> int:
        """Slots of connections that are open, or being made."""
        return len(self._generations) - len(self._free)

    def take(self) -> Slot:
        """A slot in state HEAD.

        Raises:
            IndexError: No number is free.
        """
        number = self._free.pop()
        return Slot(number, self._generations[number])

    def give_back(self, slot: Slot) -> None:
        """Free the number of a closed slot; its generations go on where they stopped.

        The caller has queued RELEASE to every holder before (lending rule 9).
        """
        self._generations[slot.number] = slot.generation
        self._free.append(slot.number)
