"""How a writer's new bytes reach the file: at once in memory, through a queue on disk.

`Appender` decides where they go and writes in place; `QueuedAppender` copies them into a bounded
queue that threads write, and never waits itself. Both remember the first failure and raise it
only where the protocol of writers may: in `wait_room` and `flush`.

Must not know what the bytes are.

Spec: docs/replay.md#files
"""

from __future__ import annotations

import asyncio
from collections import deque
from concurrent.futures import Executor, Future
from typing import Final

from sessions.errors.group import ReplayStoreError
from sessions.replay.extents import Extent, append, total_bytes
from sessions.replay.regions import Region
from sessions.replay.session_file import PIECE_BYTES, SessionFile
from sessions.replay.session_space import SessionSpace

# What one writer may have on its way to the disk (a guess: some ms of a slow disk).
QUEUE_BYTES: Final = 4 << 20


class Appender:
    """Appends for one writer; bytes are written when `append_nowait` returns."""

    def __init__(self, space: SessionSpace) -> None:
        """Append nothing yet."""
        self._space = space
        self._regions: list[Region] = []
        self._extents: list[Extent] = []
        self._failure: OSError | None = None

    @property
    def extents(self) -> list[Extent]:
        """Where the bytes lie, in order."""
        return self._extents

    @property
    def size_bytes(self) -> int:
        """Bytes taken."""
        return total_bytes(self._extents)

    @property
    def regions(self) -> list[Region]:
        """Regions held; to be given back to the space."""
        return self._regions

    @property
    def is_busy(self) -> bool:
        """Whether a thread may still write."""
        return False

    def append_nowait(self, view: memoryview, wanted: int | None) -> int:
        """Take bytes.

        Args:
            view: Shared during the call only.
            wanted: Where in the file they would go best, if these are the first ones.

        Returns:
            How many were taken; fewer than given when the queue is full or the disk failed.
        """
        done = 0
        while done < len(view) and self._failure is None:
            size = min(len(view) - done, PIECE_BYTES, self._room_bytes())
            if not size:
                break
            try:
                file = self._space.open()
                size, extent = self._place(size, wanted)
                self._write(file, view[done : done + size], extent.start)
            except OSError as error:
                self._failure = error
                break
            append(self._extents, extent)
            done += size
        return done

    async def wait_room(self) -> None:
        """Wait until bytes are taken again.

        Raises:
            ReplayStoreError: The disk failed.
        """
        self._raise_failure()

    async def flush(self) -> None:
        """Wait until all is written.

        Raises:
            ReplayStoreError: The disk failed.
        """
        self._raise_failure()

    def cancel(self) -> None:
        """Write no more."""

    def _room_bytes(self) -> int:
        return PIECE_BYTES

    def _write(self, file: SessionFile, view: memoryview, offset: int) -> None:
        file.write(view, offset)

    def _place(self, size: int, wanted: int | None) -> tuple[int, Extent]:
        if not self._regions or not self._regions[-1].room_bytes:
            at = self._extents[-1].stop if self._extents else wanted
            self._regions.append(self._space.take(at))
        region = self._regions[-1]
        size = min(size, region.room_bytes)
        return size, self._space.extend(region, size)

    def _raise_failure(self) -> None:
        if self._failure is not None:
            reason = self._failure.strerror or str(self._failure)
            raise ReplayStoreError(f"the replay cannot be stored: {reason}") from self._failure


class QueuedAppender(Appender):
    """Appends through threads of an executor."""

    def __init__(self, space: SessionSpace, threads: Executor) -> None:
        """Queue nothing yet."""
        super().__init__(space)
        self._threads = threads
        self._queue: deque[tuple[Future[OSError | None], int]] = deque()
        self._queued_bytes = 0

    @property
    def is_busy(self) -> bool:
        """Whether a thread may still write."""
        self._reap()
        return bool(self._queue)

    async def wait_room(self) -> None:
        """Wait until bytes are taken again.

        Raises:
            ReplayStoreError: The disk failed.
        """
        while not self._room_bytes() and self._failure is None:
            await self._wait_oldest()
        self._raise_failure()

    async def flush(self) -> None:
        """Wait until all is written.

        Raises:
            ReplayStoreError: The disk failed.
        """
        while self.is_busy:
            await self._wait_oldest()
        self._raise_failure()

    def cancel(self) -> None:
        """Write no more; what a thread writes just now is still on its way (`is_busy`)."""
        for future, _ in self._queue:
            future.cancel()
        self._reap()

    def _room_bytes(self) -> int:
        self._reap()
        return QUEUE_BYTES - self._queued_bytes

    def _write(self, file: SessionFile, view: memoryview, offset: int) -> None:
        future = self._threads.submit(_write, file, bytes(view), offset)
        self._queue.append((future, len(view)))
        self._queued_bytes += len(view)

    def _reap(self) -> None:
        """Forget what is written."""
        undone: deque[tuple[Future[OSError | None], int]] = deque()
        for future, size in self._queue:
            if not future.done():
                undone.append((future, size))
                continue
            self._queued_bytes -= size
            if not future.cancelled() and self._failure is None:
                self._failure = future.result()
        self._queue = undone

    async def _wait_oldest(self) -> None:
        await asyncio.wait([asyncio.wrap_future(self._queue[0][0])])


def _write(file: SessionFile, data: bytes, offset: int) -> OSError | None:
    """Runs in a thread; a failure is a result, since nobody may be waiting for it."""
    try:
        file.write(data, offset)
    except OSError as error:
        return error
    return None
