"""Where the replay blobs of a JSON text begin and end, found while the text arrives.

A blob is the string value of a member named as one of the replay fields. Its beginning is looked
for by bytes: the quoted name, a colon, a quote, white space between them. Within a JSON string each
quote has a backslash before it, so a name whose own quote follows `{`, `,` or white space is no
part of a string. The blob ends at the next quote. Whoever cuts it out must see to it that it is
base64: then no escape was in it. Short values stay text.

Outside blobs the scanner collects the text, since a name may arrive in pieces. Within one it is not
asked: to look for the next quote is all there is to do.

Must not know what becomes of text and blobs, nor whether the text is JSON at all.

Spec: docs/replay.md#scan
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final

from sessions.replay.splice import MIN_BLOB_BYTES

REPLAY_FIELDS: Final = ("routed_experts", "indexer_topk")

_KEYS: Final = tuple(f'"{field}"'.encode() for field in REPLAY_FIELDS)
_BEFORE_KEY: Final = b"{, \n\t\r"
_OPENING: Final = re.compile(rb'[ \n\t\r]*+:[ \n\t\r]*+"')
_START_OF_OPENING: Final = re.compile(rb"[ \n\t\r]*+(?::[ \n\t\r]*+)?")
# More white space than this before a value makes it text; else each piece of it would be read anew.
_OPENING_BYTES: Final = 256


@dataclass(frozen=True, slots=True, kw_only=True)
class BlobStart:
    """A blob begins in the piece that was just fed.

    Attributes:
        field: The name of its member.
        head: Its first characters, which came with earlier pieces; fewer than `MIN_BLOB_BYTES`.
        offset: Where it goes on in the piece.
    """

    field: str
    head: bytes
    offset: int


class TextScanner:
    """Collects the text around blobs; see the module docstring.

    Attributes:
        text: All text so far. After `feed` found a blob it ends with the quote before the blob; the
            owner may append what shall stand there, before the next `feed`.
    """

    __slots__ = ("_hits", "_searched", "_todo", "text")

    def __init__(self) -> None:
        self.text = bytearray()
        self._todo = 0  # no blob begins before this index
        self._hits = [-1 for _ in _KEYS]  # per key: where it stands next, if not below `_todo`
        self._searched = [0 for _ in _KEYS]  # per key: where to look for the one after that

    def feed(self, piece: memoryview) -> BlobStart | None:
        """Take the next bytes, which are not within a blob.

        Args:
            piece: Copied.

        Returns:
            None if all of it is text, else where a blob begins. Look for the next quote from there
            on, and after the blob feed the bytes from that quote on.
        """
        text, before = self.text, len(self.text)
        text += piece
        while (found := self._next_key()) is not None:
            at, index = found
            start = self._start_of_value(at + len(_KEYS[index]))
            if start is None:
                break
            if start < 0:
                self._todo = at + 1
                continue
            quote = text.find(b'"', start, start + MIN_BLOB_BYTES)
            if quote >= 0:
                self._todo = quote
                continue
            if len(text) < start + MIN_BLOB_BYTES:
                break
            head = bytes(text[start:before])
            del text[start:]
            self._todo = start
            self._hits = [-1 for _ in _KEYS]
            self._searched = [start for _ in _KEYS]
            return BlobStart(field=REPLAY_FIELDS[index], head=head, offset=max(0, start - before))
        return None

    def _next_key(self) -> tuple[int, int] | None:
        """Where the next whole key stands, and its index."""
        for index, key in enumerate(_KEYS):
            if self._hits[index] < self._todo:
                self._hits[index] = self._find(key, max(self._todo, self._searched[index]))
                is_found = self._hits[index] >= 0
                last = self._hits[index] if is_found else len(self.text) - len(key)
                self._searched[index] = max(self._searched[index], last + 1)
        at = min((hit for hit in self._hits if hit >= 0), default=-1)
        if at < 0:
            return None
        self._todo = at
        return at, self._hits.index(at)

    def _find(self, key: bytes, start: int) -> int:
        """Where a key stands that is no part of a string, or -1."""
        at = self.text.find(key, start)
        while at >= 0 and not (at and self.text[at - 1] in _BEFORE_KEY):
            at = self.text.find(key, at + 1)
        return at

    def _start_of_value(self, after_key: int) -> int | None:
        """Where the string after a key begins; negative: no string; None: it is not there yet."""
        opening = _OPENING.match(self.text, after_key, after_key + _OPENING_BYTES)
        if opening is not None:
            return opening.end()
        rest = len(self.text) - after_key
        is_begun = (
            _START_OF_OPENING.fullmatch(self.text, after_key) if rest < _OPENING_BYTES else None
        )
        return None if is_begun else -1
