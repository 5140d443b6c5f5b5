"""What was taken from a reply: its small JSON text, and the blobs that stood in it.

In the text each blob is replaced by a placeholder, a short string that nobody could have guessed
when the reply was written. So the text parses as the whole reply would, and tells where each blob
belongs; a text that was written anew from the parsed reply does so as well.

Must not know JSON beyond that a placeholder needs no escape in it.

Spec: docs/replay.md#placeholders
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

from sessions.replay.blobs import ReplayBlob

# The most that a blob gives at once.
READ_BYTES: Final = 1 << 20


@dataclass(frozen=True, slots=True, kw_only=True)
class TakenBlob:
    """A blob that was cut out.

    Attributes:
        placeholder: The string that stands for it: ASCII without quotes and backslashes.
        field: The name of its member.
        blob: Where it is now.
    """

    placeholder: str
    field: str
    blob: ReplayBlob


@dataclass(frozen=True, slots=True, kw_only=True)
class TakenText:
    """A reply without its blobs.

    Attributes:
        text: The reply's bytes, a placeholder in the place of each blob.
        blobs: In the order of the text; each placeholder stands in the text once.
    """

    text: bytes
    blobs: tuple[TakenBlob, ...]

    def restore(self) -> bytes:
        """The reply's own bytes. Reads the blobs, waiting for the disk: for threads.

        Raises:
            ReplayStoreError: The disk failed.
        """
        whole = bytearray()
        for part in parts_of(self.text, self.blobs):
            if isinstance(part, bytes):
                whole += part
            else:
                for start in range(0, part.size_bytes, READ_BYTES):
                    whole += part.read(start, min(start + READ_BYTES, part.size_bytes))
        return bytes(whole)


class InlineBlob:
    """A blob too short for the store, as a `ReplayBlob`: its bytes are here."""

    __slots__ = ("_text",)

    def __init__(self, text: bytes) -> None:
        self._text = text

    @property
    def size_bytes(self) -> int:
        """Length of the text."""
        return len(self._text)

    @property
    def head(self) -> bytes:
        """Its first 256 characters."""
        return self._text[:256]

    @property
    def tail(self) -> bytes:
        """Its last 4 characters."""
        return self._text[-4:]

    def read_nowait(self, start: int, stop: int) -> bytes:
        """Bytes [start, stop)."""
        return self._text[start:stop]

    def read(self, start: int, stop: int) -> bytes:
        """Bytes [start, stop)."""
        return self._text[start:stop]

    def pin(self) -> None:
        """Nothing to do: the bytes live as long as this."""

    def unpin(self) -> None:
        """The opposite of `pin`."""


def parts_of(text: bytes, blobs: Iterable[TakenBlob]) -> tuple[bytes | ReplayBlob, ...]:
    """Split a text at its placeholders.

    Args:
        text: Each placeholder stands in it at most once.
        blobs: In any order.

    Returns:
        Bytes and blobs in the text's order, no bytes empty; what has no placeholder in the text is
        left out.
    """
    places: list[tuple[int, TakenBlob]] = []
    after = 0
    for blob in blobs:
        wanted = blob.placeholder.encode("ascii")
        at = text.find(wanted, after)
        if at < 0:  # not in the order of the blobs
            at = text.find(wanted, 0, after)
        if at >= 0:
            places.append((at, blob))
            after = at + len(wanted)
    parts: list[bytes | ReplayBlob] = []
    done = 0
    for at, blob in sorted(places, key=lambda place: place[0]):
        parts += [text[done:at], blob.blob]
        done = at + len(blob.placeholder)
    parts.append(text[done:])
    return tuple(part for part in parts if part != b"")
