"""Texts in parts, and blobs of a store that is slow, fails, and counts its pins.

Spec: docs/architecture.md#tests
"""

from __future__ import annotations

import threading
from collections.abc import Iterable

from sessions.replay.splice import Part


def text_of(parts: Iterable[Part]) -> bytes:
    """The bytes of parts, put together."""
    return b"".join(
        bytes(part) if isinstance(part, bytes | memoryview) else part.read(0, part.size_bytes)
        for part in parts
    )


class FakeBlob:
    """A blob in memory that behaves as one on a disk may.

    Attributes:
        is_at_hand: Whether it is read without waiting.
        fails_at: Reads that reach this byte fail; None for no failure.
        gate: Reads in a thread wait here; open unless a test clears it.
        pins: How often it is pinned now.
        most_bytes: Of the largest read.
        read_bytes: Of all reads together.
        was_read_unpinned: Whether a read began or ended while nobody held it.
    """

    def __init__(
        self,
        text: bytes,
        *,
        is_at_hand: bool = True,
        fails_at: int | None = None,
        error: type[Exception] = OSError,
    ) -> None:
        self._text = text
        self._error = error
        self.is_at_hand = is_at_hand
        self.fails_at = fails_at
        self.gate = threading.Event()
        self.gate.set()
        self.pins = 0
        self.most_bytes = 0
        self.read_bytes = 0
        self.was_read_unpinned = False

    @property
    def size_bytes(self) -> int:
        """Length of the text."""
        return len(self._text)

    @property
    def head(self) -> bytes:
        """Its first characters."""
        return self._text[:256]

    @property
    def tail(self) -> bytes:
        """Its last characters."""
        return self._text[-4:]

    def read_nowait(self, start: int, stop: int) -> bytes | None:
        """Bytes [start, stop), or None if the blob is not at hand."""
        return self._read(start, stop) if self.is_at_hand else None

    def read(self, start: int, stop: int) -> bytes:
        """The same, when the gate is open."""
        if not self.pins:
            self.was_read_unpinned = True
        self.gate.wait()
        return self._read(start, stop)

    def pin(self) -> None:
        """Count one more."""
        self.pins += 1

    def unpin(self) -> None:
        """Count one less."""
        self.pins -= 1

    def _read(self, start: int, stop: int) -> bytes:
        assert 0 <= start < stop <= len(self._text)
        if not self.pins:
            self.was_read_unpinned = True
        self.most_bytes = max(self.most_bytes, stop - start)
        self.read_bytes += stop - start
        if self.fails_at is not None and stop > self.fails_at:
            raise self._error("the disk failed")
        return self._text[start:stop]
