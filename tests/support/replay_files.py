"""Files of a replay store with the faults of a disk: cold, full, of small regions.

They wrap real ones, so what the store does with them is what it does on disk.

Spec: docs/architecture.md#tests
"""

from __future__ import annotations

import errno
import random
from typing import Final

from sessions.replay.session_file import Files, SessionFile

SMALL_REGION_BYTES: Final = 10_000


class FaultyFile(SessionFile):
    """A file of `FaultyFiles`; shares the descriptor of the real one."""

    __slots__ = ("_owner",)

    def __init__(self, real: SessionFile, owner: FaultyFiles) -> None:
        super().__init__(real._fd, real._holes, waits=real._waits)
        self._owner = owner

    def write(self, data: bytes | memoryview, offset: int) -> None:
        """Write, or fail if the disk is full by then."""
        self._owner.spend(len(data))
        super().write(data, offset)

    def read(self, start: int, stop: int) -> bytes:
        """Read, or fail if the disk is broken."""
        self._owner.check_whole()
        return super().read(start, stop)

    def read_into(self, into: memoryview, offset: int) -> None:
        """Read, or fail if the disk is broken."""
        self._owner.check_whole()
        super().read_into(into, offset)

    def read_into_nowait(self, into: memoryview, offset: int) -> bool:
        """Read, unless it is cold."""
        is_cold = self._owner.random.random() < self._owner.coldness
        return not is_cold and super().read_into_nowait(into, offset)


class FaultyFiles:
    """Makes files that misbehave as told.

    Attributes:
        coldness: How often a read that may not wait finds nothing, 0 to 1.
        room_bytes: What may still be written, over all files; None for no limit.
        is_broken: Whether every read that may wait fails.
        opened: All files made.
    """

    def __init__(self, real: Files, *, region_bytes: int = 0) -> None:
        """Misbehave in nothing yet.

        Args:
            real: Makes the files behind.
            region_bytes: Of a region, if not as the real ones.
        """
        self._real = real
        self._region_bytes = region_bytes or real.region_bytes
        self.coldness = 0.0
        self.room_bytes: int | None = None
        self.is_broken = False
        self.random = random.Random(1)
        self.opened: list[FaultyFile] = []

    @property
    def waits(self) -> bool:
        """As the real ones."""
        return self._real.waits

    @property
    def region_bytes(self) -> int:
        """As told."""
        return self._region_bytes

    def open(self) -> SessionFile:
        """Make a file."""
        made = FaultyFile(self._real.open(), self)
        self.opened.append(made)
        return made

    def check_whole(self) -> None:
        """Find the disk whole.

        Raises:
            OSError: It is broken.
        """
        if self.is_broken:
            raise OSError(errno.EIO, "broken disk")

    def spend(self, size_bytes: int) -> None:
        """Take room for a write.

        Raises:
            OSError: The disk is full.
        """
        if self.room_bytes is None:
            return
        if size_bytes > self.room_bytes:
            raise OSError(errno.ENOSPC, "No space left on device")
        self.room_bytes -= size_bytes
