"""Texts with the blobs cut out, and put back byte for byte.

`cut_blobs` finds where given blobs stand in a JSON text, `SplicedText` holds the rest with the
stored blobs in their places. Putting the same bytes back where they were cut gives the old text
whatever they mean, so the text need not be understood here.

Must not know JSON beyond the quotes around a string.

Spec: docs/replay.md#splice
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Final, TypeAlias

from sessions.replay.blobs import Readable, ReplayBlob

# Shorter blobs stay in the text: a handle of its own would cost more than it saves (a guess).
MIN_BLOB_BYTES: Final = 256

_PROBE_BYTES: Final = 64

Span: TypeAlias = tuple[int, int]
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


def find_blobs(text: bytes, blobs: Iterable[str]) -> list[Span]:
    """Find blobs that stand in a text as whole, unescaped JSON strings.

    Args:
        text: JSON.
        blobs: What to look for; those shorter than `MIN_BLOB_BYTES` or not ASCII are left alone.

    Returns:
        Half-open ranges between the quotes, in order, none overlapping.
    """
    found: list[Span] = []
    for blob in {blob for blob in blobs if len(blob) >= MIN_BLOB_BYTES and blob.isascii()}:
        wanted = blob.encode("ascii")
        probe = b'"' + wanted[:_PROBE_BYTES]
        at = text.find(probe)
        while at >= 0:
            start, end = at + 1, at + 1 + len(wanted)
            is_whole = text.startswith(wanted, start) and text[end : end + 1] == b'"'
            if is_whole:
                found.append((start, end))
            at = text.find(probe, end if is_whole else start)
    return sorted(found)


def cut_blobs(
    text: bytes, blobs: Iterable[str], keep: Callable[[memoryview], ReplayBlob]
) -> SplicedText:
    """Cut blobs out of a text and store them.

    Args:
        text: JSON.
        blobs: The blobs as the JSON parser gave them.
        keep: Stores one blob; called once per different blob.

    Returns:
        The text with each blob replaced by its handle.
    """
    view = memoryview(text)
    parts: list[bytes | ReplayBlob] = []
    kept: list[tuple[Span, ReplayBlob]] = []
    done = 0
    for start, end in find_blobs(text, blobs):
        twin = next((b for (s, e), b in kept if view[s:e] == view[start:end]), None)
        handle = keep(view[start:end]) if twin is None else twin
        kept.append(((start, end), handle))
        parts += [bytes(view[done:start]), handle]
        done = end
    parts.append(bytes(view[done:]))
    return SplicedText(parts=tuple(parts))
