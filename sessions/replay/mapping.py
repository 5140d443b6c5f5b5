"""A file in memory, mapped to be compared with: its pages are looked at where they are.

Reading a page through the kernel copies it, which costs three times as much as comparing it
(measured: 0.24 and 0.07 ms per MiB). The file is mapped in windows, read only, each mapped when it
is first looked at. A window stays for as long as the file, since its page tables cost as much again
to fill as one comparison.

Nobody may look behind the end of a file: the kernel kills whoever does. So the file is made as long
as its windows before they are mapped, and whoever shortens it must not go below `floor_bytes`. What
was never written there reads as zeros and takes no memory.

The pages are the file's own; they count as resident in the process too, but are no second copy.

Must not know what a blob is.

Spec: docs/replay.md#mapping
"""

from __future__ import annotations

import contextlib
import mmap
import os
from typing import Final

# One window holds the replay of nearly every session (a guess); each has a descriptor of its own.
WINDOW_BYTES: Final = 256 << 20


class FileMapping:
    """See the module docstring. For the loop's thread; only `close` may be left to another."""

    __slots__ = ("_fd", "_is_refused", "_windows", "floor_bytes")

    def __init__(self, fd: int) -> None:
        """Map nothing yet.

        Args:
            fd: Of a file in memory; stays the caller's.
        """
        self._fd = fd
        self._windows: dict[int, tuple[mmap.mmap, memoryview]] = {}
        self._is_refused = False  # the system maps no more: not asked again
        self.floor_bytes = 0

    def view(self, start: int, stop: int) -> memoryview | None:
        """Bytes of the file, from one on.

        Args:
            start: Of the first byte.
            stop: Behind the last; more than `start`.

        Returns:
            The bytes up to `stop`, or up to the end of a window if that comes first; to be let go
            of before `close`. None if they are not mapped: read them instead.
        """
        number, offset = divmod(start, WINDOW_BYTES)
        window = self._windows.get(number)
        if window is None:
            if self._is_refused:
                return None
            try:
                window = self._map(number)
            except (OSError, ValueError):
                self._is_refused = True
                return None
            self._windows[number] = window
        return window[1][offset : offset + stop - start]

    def close(self) -> None:
        """Unmap everything."""
        for mapped, whole in self._windows.values():
            whole.release()
            # Whoever still holds a view unmaps by letting go of it.
            with contextlib.suppress(BufferError):
                mapped.close()
        self._windows.clear()

    def _map(self, number: int) -> tuple[mmap.mmap, memoryview]:
        start = number * WINDOW_BYTES
        stop = start + WINDOW_BYTES
        if os.fstat(self._fd).st_size < stop:
            os.ftruncate(self._fd, stop)
        mapped = mmap.mmap(
            self._fd, WINDOW_BYTES, flags=mmap.MAP_SHARED, prot=mmap.PROT_READ, offset=start
        )
        self.floor_bytes = max(self.floor_bytes, stop)
        return mapped, memoryview(mapped)
