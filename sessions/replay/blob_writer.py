"""A blob while it arrives: its head is kept apart, its body compared, the rest of it appended.

`StoreWriter` implements `BlobWriter`. In order: the characters of a changing head (`npy_head.py`)
stay in memory; body bytes are compared with earlier blobs (`comparison.py`) as long as they are
shared; from the first one that is not, they are appended (`appender.py`). When the blob is
finished its last quantum, which base64 padding changes, is taken back from the file and kept in
memory, so that the next blob goes on at the same place.

Must not know JSON, nor whether the bytes are base64.

Spec: docs/replay.md#sharing
"""

from __future__ import annotations

import asyncio
import enum
from collections.abc import Callable
from concurrent.futures import Executor

from sessions.errors.group import ReplayStoreError
from sessions.errors.unseen import LocalProtocolError
from sessions.replay.appender import Appender
from sessions.replay.blob import HEAD_BYTES, TAIL_BYTES, BlobText, StoredBlob
from sessions.replay.comparison import Comparison
from sessions.replay.extents import append, prefix, total_bytes
from sessions.replay.npy_head import ENOUGH_CHARS, inline_head_chars
from sessions.replay.session_blobs import SessionBlobs


class _State(enum.Enum):
    FEEDING = enum.auto()
    FINISHED = enum.auto()
    ABORTED = enum.auto()


class StoreWriter:
    """See the module docstring; made by `FileReplayStore.begin`."""

    def __init__(
        self,
        blobs: SessionBlobs,
        field: str,
        *,
        comparison: Comparison,
        appender: Appender,
        on_abort: Callable[[SessionBlobs, Appender], None],
        threads: Executor | None,
    ) -> None:
        """Begin an empty blob.

        Args:
            blobs: Of the session.
            field: Whose blobs share.
            comparison: Of this blob.
            appender: Of this blob.
            on_abort: Frees what was appended.
            threads: Where the disk is waited for; None if there is none.
        """
        self._blobs = blobs
        self._field = field
        self._comparison = comparison
        self._appender = appender
        self._on_abort = on_abort
        self._threads = threads
        self._state = _State.FEEDING
        self._start = bytearray()  # the head, or first characters until it is known what they are
        self._head_chars: int | None = None
        self._size_bytes = 0
        self._first = b""
        self._last = b""
        blobs.begin()

    @property
    def new_bytes(self) -> int:
        """Bytes written so far that no earlier blob has."""
        return len(self._start) + self._appender.size_bytes

    def feed_nowait(self, piece: bytes | memoryview) -> tuple[int, int]:
        """See `BlobWriter.feed_nowait`.

        Raises:
            LocalProtocolError: The blob was finished or aborted.
        """
        self._check_feeding()
        taken, shared = self._take_start(piece), 0
        if self._pass_start() and taken < len(piece):
            more, equal = self._take_body(piece[taken:])
            shared = equal if not taken else 0
            taken += more
        self._note(piece[:taken])
        return taken, shared

    async def wait_ready(self) -> None:
        """See `BlobWriter.wait_ready`."""
        if self._comparison.wants_disk and self._threads is not None:
            ahead = self._threads.submit(self._comparison.read_ahead)
            await asyncio.wait([asyncio.wrap_future(ahead)])
        failure = self._comparison.failure
        if failure is not None:
            raise ReplayStoreError(f"stored replay cannot be read: {failure}") from failure
        await self._appender.wait_room()

    async def finish(self, *, is_shared: bool = True) -> StoredBlob:
        """See `BlobWriter.finish`.

        Raises:
            LocalProtocolError: The blob was finished or aborted.
        """
        self._check_feeding()
        while not self._is_head_known_or_short():
            await self.wait_ready()
        await self._appender.flush()
        self._check_feeding()
        extents = list(self._comparison.extents)
        for extent in self._appender.extents:
            append(extents, extent)
        body_bytes = total_bytes(extents)
        tail_bytes = min(TAIL_BYTES, body_bytes)
        text = BlobText(
            size_bytes=self._size_bytes,
            first=self._first,
            last=self._last,
            inline_head=bytes(self._start),
            extents=tuple(prefix(extents, body_bytes - tail_bytes)),
            inline_tail=self._last[len(self._last) - tail_bytes :],
        )
        self._state = _State.FINISHED
        field = self._field if is_shared else None
        blob = self._blobs.keep(field, text, self._appender.regions)
        self._comparison.end()
        return blob

    def abort(self) -> None:
        """See `BlobWriter.abort`."""
        if self._state is not _State.FEEDING:
            return
        self._state = _State.ABORTED
        self._comparison.end()
        self._appender.cancel()
        self._on_abort(self._blobs, self._appender)

    def _take_start(self, piece: bytes | memoryview) -> int:
        """Keep characters of the head, or such that may be; how many were taken."""
        taken = 0
        if self._head_chars is None:
            taken = min(len(piece), ENOUGH_CHARS - len(self._start))
            start = bytes(self._start) + piece[:taken]
            self._head_chars = inline_head_chars(start)
            if self._head_chars == 0 and not self._start:
                return 0
            self._start += piece[:taken]
        if self._head_chars:
            more = piece[taken : taken + self._head_chars - len(self._start)]
            self._start += more
            taken += len(more)
        return taken

    def _pass_start(self) -> bool:
        """Pass first characters that turned out to be of the body on to it.

        Returns:
            Whether the body may be fed.
        """
        if self._head_chars is None:
            return False
        if self._head_chars == 0 and self._start:
            taken, _ = self._take_body(bytes(self._start))
            del self._start[:taken]
            return not self._start
        return True

    def _is_head_known_or_short(self) -> bool:
        """At the end of the text: whether all of it is in its place."""
        return self._head_chars != 0 or self._pass_start()

    def _take_body(self, piece: bytes | memoryview) -> tuple[int, int]:
        shared = self._comparison.feed_nowait(piece)
        if not self._comparison.is_over or shared == len(piece):
            return shared, shared
        wanted = None
        if not self._appender.regions:
            extents = self._comparison.extents
            wanted = extents[-1].stop if extents else None
        return shared + self._appender.append_nowait(memoryview(piece)[shared:], wanted), shared

    def _note(self, taken: bytes | memoryview) -> None:
        """Remember first and last characters, and the size."""
        self._size_bytes += len(taken)
        if len(self._first) < HEAD_BYTES:
            self._first += taken[: HEAD_BYTES - len(self._first)]
        last = bytes(taken[-TAIL_BYTES:])
        self._last = last if len(last) == TAIL_BYTES else (self._last + last)[-TAIL_BYTES:]

    def _check_feeding(self) -> None:
        if self._state is not _State.FEEDING:
            raise LocalProtocolError(f"a blob that is {self._state.name.lower()} is written")
