"""Texts with the blobs cut out, and put back byte for byte.

A `SplicedText` holds a JSON text with stored blobs in their places. Putting the same bytes back
where they were cut gives the old text whatever they mean, so it need not be understood here.

Must not know JSON beyond the quotes around a string.

Spec: docs/replay.md#splice
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final, TypeAlias

from sessions.replay.blobs import Readable, ReplayBlob

# Shorter blobs stay in the text: a handle of its own would cost more than it saves (a guess).
MIN_BLOB_BYTES: Final = 256

Part: TypeAlias = bytes | memoryview | Readable


def size_of(part: Part) -> int:
    """Bytes of a part; a view must be one of bytes."""
    return len(part) if isinstance(part, bytes | memoryview) else part.size_bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class SplicedText:
    """A text in pieces, some of them stored blobs.

    Attributes:
        parts: In order; together they are the text.
    """

    parts: tuple[bytes | ReplayBlob, ...]

    @property
    def size_bytes(self) -> int:
        """Length of the whole text."""
        return sum(map(size_of, self.parts))

    @property
    def blobs(self) -> list[ReplayBlob]:
        """The stored blobs, in order; one that stands twice comes twice."""
        return [part for part in self.parts if not isinstance(part, bytes)]

    def with_nulls(self) -> Iterator[bytes | memoryview]:
        """The text with null for every stored blob, the quotes around it included."""
        views = [memoryview(part) if isinstance(part, bytes) else None for part in self.parts]
        for index, view in enumerate(views):
            if view is None:
                yield b"null"
                continue
            start = 1 if index and views[index - 1] is None else 0
            is_before_blob = index + 1 < len(views) and views[index + 1] is None
            yield view[start : len(view) - 1 if is_before_blob else len(view)]
