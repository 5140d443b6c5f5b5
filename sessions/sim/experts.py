"""Routed experts of a simulated mixture of experts, as base64 text made without encoding.

A row is the experts of one token, int32 little-endian [layers, top_k * pad]; it depends on the
seed, the position (modulo 9) and the token id (modulo 32), so the rows of earlier tokens stay what
they were when a session grows, and change with the tokens that a roll-back replaced.

Expert ids are below 256: the last two bytes of every int32 are zero, so the base64 characters
where two rows meet depend on the second row alone. A row at a byte offset modulo 3 (its phase)
therefore always has the same text, and a blob is a join of texts looked up by C code: 0.1 ms
per MiB here, against 5 for encoding. Wide rows (a large pad) repeat one period instead.

Must not know requests or replies.

Spec: docs/sim.md#routed-experts
"""

from __future__ import annotations

import random
from binascii import b2a_base64
from collections.abc import Iterable, Iterator, Sequence
from typing import Final, Protocol, TypeAlias

Piece: TypeAlias = bytes | memoryview

PIECE_BYTES: Final = 128 * 1024  # as written to a socket at once
_BLOCK_PIECES: Final = 16  # looked up at once: each look-up has a cost of its own, like five rows
_CLASSES: Final = 9  # positions are told apart modulo this; a multiple of 3 keeps a class's phase
_VARIANTS: Final = 32  # token ids are told apart modulo this, a power of two
_NARROW_CHARS: Final = 8192  # rows up to this are kept as text: 7 MiB for all of one width
_KEPT_ENTRIES: Final = 64  # of each cache; 27 = 9 classes x 3 phases serve one width
_PADDING: Final = (b"", b"AA==", b"AAA=")  # the text of 0, 1 or 2 last bytes, all zero
_INT_BYTES: Final = 4


class Rows(Protocol):
    """The rows of one model at one width, as text."""

    row_bytes: int

    def blob(self, ids: Sequence[int], start: int = 0) -> Blob:
        """The text of the rows of `ids[start:]`; `ids` is shared, not copied."""
        ...

    def text_chars(self, rows: int) -> int:
        """Characters of the text of so many rows, padding included."""
        ...

    def texts(self, ids: Sequence[int], start: int) -> Iterator[Piece]:
        """The text of the rows of `ids[start:]` in parts of any size, then the padding."""
        ...


class Blob:
    """The base64 text of one reply's rows; its length is known before it is made."""

    __slots__ = ("_flaw_at", "_ids", "_layout", "_start")

    def __init__(
        self, layout: Rows, ids: Sequence[int], start: int, flaw_at: int | None = None
    ) -> None:
        self._layout = layout
        self._ids = ids
        self._start = start
        self._flaw_at = flaw_at

    @property
    def rows(self) -> int:
        """Rows in the blob."""
        return max(0, len(self._ids) - self._start)

    def __len__(self) -> int:
        """Characters of the text, padding included."""
        return self._layout.text_chars(self.rows)

    def flawed(self, at: int) -> Blob:
        """The same blob with a character that is no base64 at an offset."""
        return Blob(self._layout, self._ids, self._start, at)

    def pieces(self) -> Iterator[Piece]:
        """The text in order, in pieces of about `PIECE_BYTES`."""
        whole = _gathered(self._layout.texts(self._ids, self._start))
        if self._flaw_at is None:
            yield from whole
            return
        offset = 0
        for piece in whole:
            if offset <= self._flaw_at < offset + len(piece):
                spoilt = bytearray(piece)
                spoilt[self._flaw_at - offset] = ord("!")
                yield bytes(spoilt)
            else:
                yield piece
            offset += len(piece)


class Layout:
    """The rows of one model at one width."""

    def __init__(self, *, layers: int, topk: int, experts: int, seed: int, pad: int) -> None:
        """Prepare; the texts of rows are made when they are first needed.

        Args:
            layers: Layers of a row.
            topk: Experts per layer at pad 1.
            experts: Ids are 0 to this - 1; 1 to 256.
            seed: Changes all rows.
            pad: How often a row repeats its experts.
        """
        self._unit_count = layers * topk
        self._seed = seed
        self._pad = pad
        self._fold = bytes(value % experts for value in range(256))
        self.row_bytes = self._unit_count * _INT_BYTES * pad
        self._narrow = self.row_bytes // 3 * 4 <= _NARROW_CHARS
        self._narrow_texts: dict[tuple[int, int], list[bytes]] = {}
        self._periods: dict[tuple[int, int, int], tuple[bytes, bytes]] = {}

    def blob(self, ids: Sequence[int], start: int = 0) -> Blob:
        """The text of the rows of `ids[start:]`; `ids` is shared, not copied."""
        return Blob(self, ids, start)

    def raw_rows(self, ids: Sequence[int], start: int = 0) -> bytes:
        """The bytes that the blob encodes, made row by row: for tests that compare."""
        return b"".join(
            self._unit(position % _CLASSES, ids[position] % _VARIANTS) * self._pad
            for position in range(start, len(ids))
        )

    def text_chars(self, rows: int) -> int:
        """Characters of the text of so many rows, padding included."""
        return (rows * self.row_bytes + 2) // 3 * 4

    def texts(self, ids: Sequence[int], start: int) -> Iterator[Piece]:
        """The text of the rows of `ids[start:]` in parts of any size, then the padding."""
        yield from self._narrow_parts(ids, start) if self._narrow else self._wide_parts(ids, start)
        yield _PADDING[max(0, len(ids) - start) * self.row_bytes % 3]

    def _narrow_parts(self, ids: Sequence[int], start: int) -> Iterator[bytes]:
        step = max(1, PIECE_BYTES // (self.row_bytes // 3 * 4 + 4))
        block = max(_CLASSES, step * _BLOCK_PIECES)
        variant_of = (_VARIANTS - 1).__and__
        for first in range(start, len(ids), block):
            last = min(first + block, len(ids))
            rows = [b""] * (last - first)
            for offset in range(min(_CLASSES, last - first)):
                position = first + offset
                row_texts = self._texts_of(self._phase(position, start), position % _CLASSES)
                variants = map(variant_of, ids[position:last:_CLASSES])
                rows[offset::_CLASSES] = map(row_texts.__getitem__, variants)
            for at in range(0, len(rows), step):
                yield b"".join(rows[at : at + step])

    def _wide_parts(self, ids: Sequence[int], start: int) -> Iterator[Piece]:
        for position in range(start, len(ids)):
            phase = self._phase(position, start)
            variant = ids[position] % _VARIANTS
            left = (phase + self.row_bytes) // 3 * 4
            lead, period = self._period(phase, position % _CLASSES, variant)
            yield lead
            left -= len(lead)
            block = memoryview(period * (min(left, PIECE_BYTES) // len(period) + 1))
            while left > 0:
                part = block[: min(left, len(block) // len(period) * len(period))]
                yield part
                left -= len(part)

    def _phase(self, position: int, start: int) -> int:
        return (position - start) * self.row_bytes % 3

    def _texts_of(self, phase: int, position_class: int) -> list[bytes]:
        key = (phase, position_class)
        found = self._narrow_texts.get(key)
        if found is None:
            whole_triples = (phase + self.row_bytes) // 3 * 3
            found = [
                b2a_base64(
                    (bytes(phase) + self._unit(position_class, variant) * self._pad)[
                        :whole_triples
                    ],
                    newline=False,
                )
                for variant in range(_VARIANTS)
            ]
            self._narrow_texts[key] = found
        return found

    def _period(self, phase: int, position_class: int, variant: int) -> tuple[bytes, bytes]:
        """The text of the triple that the row before began, and the text that then repeats."""
        key = (phase, position_class, variant)
        found = self._periods.get(key)
        if found is None:
            unit = self._unit(position_class, variant)
            taken = -phase % 3
            lead = b2a_base64(bytes(phase) + unit[:taken], newline=False) if phase else b""
            rest = (unit * 4)[taken : taken + 3 * len(unit)]
            found = (lead, b2a_base64(rest, newline=False))
            if len(self._periods) >= _KEPT_ENTRIES:
                self._periods.clear()
            self._periods[key] = found
        return found

    def _unit(self, position_class: int, variant: int) -> bytes:
        # Not for secrets: a stable pattern is wanted. Random takes a text seed in every process
        # to the same state, unlike hash().
        pattern = random.Random(f"{self._seed}:{position_class}:{variant}")  # noqa: S311
        raw = bytearray(self._unit_count * _INT_BYTES)
        raw[::_INT_BYTES] = pattern.randbytes(self._unit_count).translate(self._fold)
        return bytes(raw)


def _gathered(parts: Iterable[Piece]) -> Iterator[Piece]:
    """The same bytes in pieces of about `PIECE_BYTES`; only small parts are copied."""
    held: list[Piece] = []
    size = 0
    for part in parts:
        if len(part) > PIECE_BYTES:
            if held:
                yield b"".join(held)
                held, size = [], 0
            view = memoryview(part)
            for at in range(0, len(view), PIECE_BYTES):
                yield view[at : at + PIECE_BYTES]
            continue
        if size + len(part) > PIECE_BYTES:
            yield b"".join(held)
            held, size = [], 0
        held.append(part)
        size += len(part)
    if size:
        yield b"".join(held)
