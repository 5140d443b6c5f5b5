"""One session's file: in memory (memfd) or on disk, with no name, gone with its last descriptor.

A file on disk is made without a name, or loses it at once, so a killed process leaves nothing. It
is sparse: only what was written and not freed takes space.

Must not know what a blob is.

Spec: docs/replay.md#files
"""

from __future__ import annotations

import contextlib
import errno
import os
import tempfile
import threading
from pathlib import Path
from typing import Final, Protocol

from sessions.replay.holes import HolePuncher
from sessions.replay.mapping import FileMapping

# Longer writes would keep the loop; equal to the size in which replies are received.
PIECE_BYTES: Final = 256 * 1024
# From this size on a file is closed by a thread: memory is freed at 0.3 ms per MiB (measured).
LARGE_BYTES: Final = 8 << 20

_UNSUPPORTED: Final = frozenset({errno.EOPNOTSUPP, errno.ENOSYS, errno.EINVAL})


class SessionFile:
    """An open file; offsets and sizes in bytes. Reading and writing may raise OSError."""

    __slots__ = ("_can_nowait", "_end", "_fd", "_holes", "_mapping", "_waits")

    def __init__(self, fd: int, holes: HolePuncher, *, waits: bool) -> None:
        """Own a descriptor.

        Args:
            fd: Of an empty file.
            holes: Frees parts of it.
            waits: Whether reading may wait for a disk.
        """
        self._fd = fd
        self._holes = holes
        # A page of a disk that is looked at is waited for, whatever the loop has to do.
        self._mapping = None if waits else FileMapping(fd)
        self._waits = waits
        self._end = 0
        self._can_nowait = True

    @property
    def waits(self) -> bool:
        """Whether reading and writing may wait for a disk."""
        return self._waits

    def reach(self, stop: int) -> None:
        """Say, before it is written, how far the file will go."""
        self._end = max(self._end, stop)

    def write(self, data: bytes | memoryview, offset: int) -> None:
        """Write all of it; also for threads, after `reach`."""
        view = memoryview(data)
        while view:
            written = os.pwrite(self._fd, view[:PIECE_BYTES], offset)
            view = view[written:]
            offset += written

    def read(self, start: int, stop: int) -> bytes:
        """Read a range whole.

        Raises:
            OSError: Also if the file ends before it.
        """
        found = os.pread(self._fd, stop - start, start)
        if len(found) == stop - start:
            return found
        buffer = bytearray(stop - start)  # seldom: a signal came, or the file is too short
        self.read_into(memoryview(buffer), start)
        return bytes(buffer)

    def read_into(self, into: memoryview, offset: int) -> None:
        """Fill a buffer from the file.

        Raises:
            OSError: Also if the file ends before it is full.
        """
        while into:
            count = os.preadv(self._fd, [into], offset)
            if not count:
                raise OSError(errno.EIO, "the file is shorter than what was written")
            into = into[count:]
            offset += count

    def view_nowait(self, start: int, stop: int) -> memoryview | None:
        """Bytes of the file where they are, not copied.

        Args:
            start: Of the first byte; it was written.
            stop: Behind the last one; more than `start`.

        Returns:
            The bytes from `start` on, maybe not all; to be let go of at once. None if the file is
            on disk or cannot be mapped: read them instead.
        """
        return None if self._mapping is None else self._mapping.view(start, stop)

    def read_into_nowait(self, into: memoryview, offset: int) -> bool:
        """Fill a buffer with what is in memory.

        Returns:
            Whether all of it was there.
        """
        if not self._waits:
            self.read_into(into, offset)
            return True
        try:
            while into and self._can_nowait:
                count = os.preadv(self._fd, [into], offset, os.RWF_NOWAIT)
                if not count:
                    return False  # past the end: the read that waits says so
                into = into[count:]
                offset += count
        except BlockingIOError:
            return False
        except OSError as error:
            if error.errno not in _UNSUPPORTED:
                raise
            self._can_nowait = False
        return not into

    def free(self, start: int, stop: int) -> None:
        """Give the space of a range back; what was in it is lost. Never raises."""
        if stop < self._end:
            self._holes.punch(self._fd, start, stop - start)
            return
        self._end = min(self._end, start)
        floor = 0 if self._mapping is None else self._mapping.floor_bytes
        if self._end < floor:
            self._holes.punch(self._fd, self._end, floor - self._end)
        self._holes.cut(self._fd, max(self._end, floor))

    def close(self) -> None:
        """Give all space back; what takes long is left to a thread."""
        mapping, self._mapping = self._mapping, None  # nobody looks at it from here on
        if self._end < LARGE_BYTES:
            _close(self._fd, mapping)
            return
        work = (self._fd, mapping)
        try:
            threading.Thread(target=_close, args=work, name="sessile-replay-close").start()
        except RuntimeError:  # no thread is left: many sessions end at once
            _close(*work)


def _close(fd: int, mapping: FileMapping | None) -> None:
    if mapping is not None:
        # Unmapping many pages would hold the interpreter's lock, and so the loop, for 10 ms and
        # more (measured). Cutting the file does not hold it, and unmaps them.
        with contextlib.suppress(OSError):
            os.ftruncate(fd, 0)
        mapping.close()
    os.close(fd)


class Files(Protocol):
    """Where the files of a store are made."""

    @property
    def waits(self) -> bool:
        """Whether reading and writing may wait for a disk."""
        ...

    @property
    def region_bytes(self) -> int:
        """Size of a region (`regions.py`)."""
        ...

    def open(self) -> SessionFile:
        """Make an empty file.

        Raises:
            OSError: No descriptor is left, or the folder cannot be written.
        """
        ...


class MemoryFiles:
    """Files in memory: reading and writing never wait."""

    waits: Final = False
    region_bytes: Final = 1 << 40  # offsets are free: up to 2 ** 63

    def __init__(self) -> None:
        self._holes = HolePuncher()

    def open(self) -> SessionFile:
        """Make a file.

        Raises:
            OSError: No descriptor is left.
        """
        return SessionFile(
            os.memfd_create("sessile-replay", os.MFD_CLOEXEC), self._holes, waits=False
        )


class SpoolFiles:
    """Files on disk, in one folder, without names."""

    waits: Final = True
    region_bytes: Final = 1 << 30  # 16384 regions fit into the largest file of ext4

    def __init__(self, folder: Path) -> None:
        """Use a folder that exists."""
        self._folder = folder
        self._holes = HolePuncher()

    def open(self) -> SessionFile:
        """Make a file.

        Raises:
            OSError: The folder cannot be written, or no descriptor is left.
        """
        try:
            flags = os.O_TMPFILE | os.O_RDWR | os.O_CLOEXEC
            return SessionFile(os.open(self._folder, flags, 0o600), self._holes, waits=True)
        except OSError as error:
            if error.errno not in {*_UNSUPPORTED, errno.EISDIR}:
                raise
        fd, path = tempfile.mkstemp(prefix="sessile-", dir=self._folder)
        os.unlink(path)
        return SessionFile(fd, self._holes, waits=True)
