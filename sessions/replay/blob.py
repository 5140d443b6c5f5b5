"""A stored blob: its first and last characters in memory, what is between in the session's file.

`StoredBlob` implements `ReplayBlob`. What becomes of its bytes when it is discarded or unpinned is
decided by the session (`session_blobs.py`), which is told.

Must not know JSON.

Spec: docs/replay.md#sharing
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final

from sessions.errors.group import ReplayStoreError
from sessions.errors.unseen import LocalProtocolError
from sessions.replay.extents import Extent, ends_of, locate
from sessions.replay.session_file import SessionFile

HEAD_BYTES: Final = 256
TAIL_BYTES: Final = 4  # one quantum of base64: what padding may change
READ_LIMIT_BYTES: Final = 1 << 20


@dataclass(frozen=True, slots=True, kw_only=True)
class BlobText:
    """Where the text of a blob is.

    Attributes:
        size_bytes: Length of the text.
        first: Up to its first 256 characters.
        last: Up to its last 4.
        inline_head: The characters before the body; kept in memory.
        extents: Where the body lies in the file.
        inline_tail: The characters behind the body.
    """

    size_bytes: int
    first: bytes
    last: bytes
    inline_head: bytes
    extents: Sequence[Extent]
    inline_tail: bytes

    @property
    def inline_bytes(self) -> int:
        """Characters that are in memory only."""
        return len(self.inline_head) + len(self.inline_tail)


class StoredBlob:
    """See the module docstring; made by a writer that finished."""

    __slots__ = ("_ends", "_file", "_on_loose", "_pin_count", "_text", "is_discarded", "is_freed")

    def __init__(
        self, text: BlobText, file: SessionFile | None, on_loose: Callable[[StoredBlob], None]
    ) -> None:
        """Keep a blob.

        Args:
            text: Where it is.
            file: The session's; None if there are no extents.
            on_loose: Called when it is discarded and nothing pins it; it then frees the bytes.
        """
        self._text = text
        self._ends = ends_of(text.extents)
        self._file = file
        self._on_loose = on_loose
        self._pin_count = 0
        self.is_discarded = False
        self.is_freed = False

    @property
    def text(self) -> BlobText:
        """Where its text is."""
        return self._text

    @property
    def is_pinned(self) -> bool:
        """Whether somebody pins it."""
        return self._pin_count > 0

    @property
    def size_bytes(self) -> int:
        """Length of the text."""
        return self._text.size_bytes

    @property
    def body_bytes(self) -> int:
        """Length of the part that is in the file."""
        return self._ends[-1] if self._ends else 0

    @property
    def head(self) -> bytes:
        """Up to the first 256 characters."""
        return self._text.first

    @property
    def tail(self) -> bytes:
        """Up to the last 4 characters."""
        return self._text.last

    def pin(self) -> None:
        """Keep the bytes although the blob may be discarded; counted."""
        self._check_held()
        self._pin_count += 1

    def unpin(self) -> None:
        """The opposite of `pin`."""
        if not self._pin_count:
            raise LocalProtocolError("a blob is unpinned more often than pinned")
        self._pin_count -= 1
        self._let_go()

    def discard(self) -> None:
        """The session forgets the blob: free its bytes as soon as nothing pins it."""
        self.is_discarded = True
        self._let_go()

    def read_nowait(self, start: int, stop: int) -> bytes | None:
        """Bytes [start, stop) of the text, at most 1 MiB, or None if a disk must be waited for.

        Raises:
            ReplayStoreError: The disk failed.
        """
        return self._read(start, stop, is_nowait=True)

    def read(self, start: int, stop: int) -> bytes:
        """Bytes [start, stop) of the text; for threads.

        Raises:
            ReplayStoreError: The disk failed.
        """
        found = self._read(start, stop, is_nowait=False)
        if found is None:
            raise LocalProtocolError("a read that may wait did not")
        return found

    def view_nowait(self, place: int, size_bytes: int) -> memoryview | None:
        """Body bytes for a comparison where they are, not copied.

        Args:
            place: Within the body.
            size_bytes: How many are wanted; more than none, and the body has as many.

        Returns:
            The first of them, at least one; to be let go of at once. None if they cannot be looked
            at where they are: see `peek_nowait`.
        """
        if self._file is None:
            return None
        part = locate(self._text.extents, self._ends, place, place + size_bytes)[0]
        return self._file.view_nowait(part.start, part.stop)

    def peek_nowait(self, place: int, into: memoryview) -> int | None:
        """Fill a buffer with body bytes for a comparison.

        Args:
            place: Within the body.
            into: Not empty.

        Returns:
            How many bytes it has now: up to the end of an extent, 0 at the end of the body. None
            if a disk must be waited for.

        Raises:
            OSError: The disk failed.
        """
        part, view = self._part_at(place, into)
        if part is None or self._file is None:
            return 0
        return len(view) if self._file.read_into_nowait(view, part.start) else None

    def peek(self, place: int, into: memoryview) -> int:
        """As `peek_nowait`, waiting for the disk."""
        part, view = self._part_at(place, into)
        if part is None or self._file is None:
            return 0
        self._file.read_into(view, part.start)
        return len(view)

    def _part_at(self, place: int, into: memoryview) -> tuple[Extent | None, memoryview]:
        stop = min(place + len(into), self.body_bytes)
        parts = locate(self._text.extents, self._ends, place, stop)
        return (parts[0], into[: parts[0].size_bytes]) if parts else (None, into)

    def _read(self, start: int, stop: int, *, is_nowait: bool) -> bytes | None:
        self._check_held()
        if not 0 <= start <= stop <= self.size_bytes or stop - start > READ_LIMIT_BYTES:
            raise LocalProtocolError(f"no range of a blob: {start} to {stop}")
        text = self._text
        body_from = len(text.inline_head)
        body_to = body_from + self.body_bytes
        low, high = max(start, body_from) - body_from, min(stop, body_to) - body_from
        parts = locate(text.extents, self._ends, low, high)
        if len(parts) == 1 and parts[0].size_bytes == stop - start:
            whole = self._read_part(parts[0], is_nowait=is_nowait)
            if whole is not None:
                return whole
        found = bytearray(stop - start)
        view = memoryview(found)
        head = text.inline_head[start:stop]
        view[: len(head)] = head
        done = len(head)
        for part in parts:
            if not self._fill(view[done : done + part.size_bytes], part, is_nowait=is_nowait):
                return None
            done += part.size_bytes
        view[done:] = text.inline_tail[max(0, start - body_to) : max(0, stop - body_to)]
        return bytes(found)

    def _read_part(self, part: Extent, *, is_nowait: bool) -> bytes | None:
        """A part at once, without the two copies that `_fill` costs; None if it may wait."""
        if self._file is None or (is_nowait and self._file.waits):
            return None
        try:
            return self._file.read(part.start, part.start + part.size_bytes)
        except OSError as error:
            raise ReplayStoreError(f"stored replay cannot be read: {error.strerror}") from error

    def _fill(self, view: memoryview, part: Extent, *, is_nowait: bool) -> bool:
        if self._file is None:
            raise LocalProtocolError("a blob has extents and no file")
        try:
            if is_nowait:
                return self._file.read_into_nowait(view, part.start)
            self._file.read_into(view, part.start)
        except OSError as error:
            raise ReplayStoreError(f"stored replay cannot be read: {error.strerror}") from error
        return True

    def _check_held(self) -> None:
        if self.is_freed:
            raise LocalProtocolError("a discarded blob is used")

    def _let_go(self) -> None:
        if self.is_discarded and not self._pin_count and not self.is_freed:
            self.is_freed = True
            self._on_loose(self)
