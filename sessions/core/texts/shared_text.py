"""Texts that turns share: the text of a turn begins as that of the turn before, and has its pieces.

Every turn sends the whole conversation, so whatever is kept of each turn would grow with the square
of their number. Here a text is a tuple of pieces, and the next one holds the same objects as far as
it is equal. Small pieces are written anew, so that there are never many.

Must not know what the texts are.

Spec: docs/sessions.md#shared-texts
"""

from __future__ import annotations

from array import array
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from sessions.core.texts.json_text import render_json

# A smaller piece is not shared: so much is kept twice at most (a guess).
PIECE_BYTES: Final = 8192


def share(text: bytes, earlier: Sequence[bytes]) -> tuple[bytes, ...]:
    """Cut a text into pieces, the first ones those of an earlier text.

    Args:
        text: The text.
        earlier: Pieces of an earlier one, in order.

    Returns:
        Pieces of the text in order; those that it begins with are shared, the rest is one more.
    """
    pieces: list[bytes] = []
    done = 0
    for piece in earlier:
        if len(piece) < PIECE_BYTES or not text.startswith(piece, done):
            break
        pieces.append(piece)
        done += len(piece)
    if done < len(text):
        pieces.append(text[done:])
    return tuple(pieces)


def with_known_parts(parts: Sequence[bytes], earlier: Sequence[bytes]) -> tuple[bytes, ...]:
    """The parts of a text, those that an earlier text has too as its objects, wherever they stand.

    Args:
        parts: The parts.
        earlier: Those of the earlier text.
    """
    known = {part: part for part in earlier}
    return tuple(known.get(part, part) for part in parts)


@dataclass(frozen=True, slots=True, kw_only=True)
class IdsText:
    """Token ids as JSON text.

    Attributes:
        pieces: Together the ids with commas between them, without brackets.
        counts: How many ids stand in each piece.
    """

    pieces: tuple[bytes, ...] = ()
    counts: tuple[int, ...] = ()

    @property
    def json_parts(self) -> tuple[bytes, ...]:
        """The JSON array in parts; no part is empty."""
        return (b"[", *self.pieces, b"]")

    def followed(self, ids: array[int], same_count: int) -> IdsText:
        """The text of other ids that begin with ids of this one.

        Args:
            ids: All of them.
            same_count: How many ids, from the first on, are those of this text.

        Returns:
            Their text; it shares pieces. Costs what the other ids cost.
        """
        pieces: list[bytes] = []
        counts: list[int] = []
        done = 0
        for piece, count in zip(self.pieces, self.counts, strict=True):
            if done + count > same_count or len(piece) < PIECE_BYTES:
                break
            pieces.append(piece)
            counts.append(count)
            done += count
        if done < len(ids):
            more = render_json(ids[done:].tolist())[1:-1]
            pieces.append(b"," + more if done else more)
            counts.append(len(ids) - done)
        return IdsText(pieces=tuple(pieces), counts=tuple(counts))
