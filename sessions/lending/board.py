"""The board: what the members of a group tell each other through shared memory.

An anonymous shared mapping made by the arbiter before the forks. Each member has one row of
aligned 8-byte words that only it writes (phase, pid, last beat, open sessions, requests served),
so a read needs no lock and a busy or dead member costs its readers nothing. The arbiter alone
writes the cause of a death, a line of text. Two flags are set by whoever learns of them first and
never taken back: that the group drains, and that its application would go on without a shard. Row 0
is the router's, row i + 1 is shard i's. What a shard counts besides, for the metrics page, stands
in a second table of the same rows.

Spec: docs/lending.md#board
"""

from __future__ import annotations

import enum
import mmap
import time
from dataclasses import astuple, dataclass, fields
from typing import Final

from sessions.lending.tally import Tally

ROUTER_ROW: Final = 0
_WORDS: Final = 8  # per row, so that a row is one cache line
_CAUSE_BYTES: Final = 1024
_TALLY_WORDS: Final = len(fields(Tally))
_PHASE, _PID, _BEAT_NS, _SESSIONS, _REQUESTS = range(5)
_DRAINING, _GOES_ON = range(2)  # in the row behind the members'


class Phase(enum.IntEnum):
    """Where a member of the group stands in its life."""

    FORKED = 0
    BOOTING = 1
    READY = 2
    DRAINING = 3
    DRAINED = 4
    DEAD = 5  # written by the arbiter: the group goes on without the member


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """One member as it last described itself.

    Attributes:
        beat_age_s: Seconds since its loop last beat; infinite before the first beat.
        sessions: Open sessions; for the router, claims of live shards.
        requests: Requests answered since its start.
    """

    phase: Phase
    pid: int
    beat_age_s: float
    sessions: int
    requests: int


class Board:
    """Shared counters of one group; made before the forks."""

    def __init__(self, shards: int) -> None:
        """Make the mapping.

        Args:
            shards: Number of shards; the board has one row more.
        """
        self.shards = shards
        self.started_ns = time.time_ns()
        rows_end = (shards + 2) * _WORDS * 8
        tallies_end = rows_end + (shards + 1) * _TALLY_WORDS * 8
        self._map = mmap.mmap(-1, tallies_end + _CAUSE_BYTES)
        self._words = memoryview(self._map)[:rows_end].cast("Q")
        self._tallies = memoryview(self._map)[rows_end:tallies_end].cast("Q")
        self._text = memoryview(self._map)[tallies_end:]

    def row_of_shard(self, index: int) -> int:
        """The row number of a shard."""
        return index + 1

    def set_phase(self, row: int, phase: Phase, pid: int) -> None:
        """Write a member's phase and pid."""
        self._words[row * _WORDS + _PID] = pid
        self._words[row * _WORDS + _PHASE] = phase

    def beat(self, row: int, *, sessions: int = 0, requests: int = 0) -> None:
        """Say that the member's loop turns, and publish its counters."""
        base = row * _WORDS
        self._words[base + _SESSIONS] = sessions
        self._words[base + _REQUESTS] = requests
        self._words[base + _BEAT_NS] = time.monotonic_ns()

    def read_row(self, row: int) -> Row:
        """What a member last said of itself."""
        base = row * _WORDS
        beat = self._words[base + _BEAT_NS]
        return Row(
            phase=Phase(self._words[base + _PHASE]),
            pid=self._words[base + _PID],
            beat_age_s=(time.monotonic_ns() - beat) / 1e9 if beat else float("inf"),
            sessions=self._words[base + _SESSIONS],
            requests=self._words[base + _REQUESTS],
        )

    def set_tally(self, row: int, tally: Tally) -> None:
        """Publish what a shard counts."""
        start = row * _TALLY_WORDS
        for offset, number in enumerate(astuple(tally)):
            self._tallies[start + offset] = number

    def tally_of(self, row: int) -> Tally:
        """What a shard last counted; zeros before its first beat."""
        start = row * _TALLY_WORDS
        names = (field.name for field in fields(Tally))
        numbers = self._tallies[start : start + _TALLY_WORDS]
        return Tally(**dict(zip(names, numbers, strict=True)))

    @property
    def draining(self) -> bool:
        """Whether the group was told to stop."""
        return self._flag(_DRAINING)

    def set_draining(self) -> None:
        """Say that the group was told to stop; never taken back."""
        self._set_flag(_DRAINING)

    @property
    def goes_on(self) -> bool:
        """Whether the application lives on when a shard dies, by its own default."""
        return self._flag(_GOES_ON)

    def set_goes_on(self) -> None:
        """Say that it does; each shard does when it has loaded the application."""
        self._set_flag(_GOES_ON)

    def _flag(self, number: int) -> bool:
        return self._words[(self.shards + 1) * _WORDS + number] != 0

    def _set_flag(self, number: int) -> None:
        self._words[(self.shards + 1) * _WORDS + number] = 1

    @property
    def cause(self) -> str:
        """The first death of the group in words, or "" while none is known."""
        return bytes(self._text).split(b"\0", 1)[0].decode(errors="replace")

    def set_cause(self, text: str) -> None:
        """Write the cause of the first death; later ones are ignored."""
        if not self.cause:
            line = text.encode()[: _CAUSE_BYTES - 1]
            self._text[: len(line)] = line
