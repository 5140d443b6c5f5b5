"""Routed experts as vLLM sends them: base64 of a whole `.npy` file, uint8 [rows, layers, top_k].

The numbers are those of the int32 rows. The header names the number of rows, so it changes from
turn to turn while the rows after it stay what they were. The text is encoded piece by piece, which
costs more than looking it up: 3 ms per MiB of text here (a guess from base64's own speed).

Spec: docs/sim.md#routed-experts
"""

from __future__ import annotations

from binascii import b2a_base64
from collections.abc import Iterator, Sequence
from typing import Final

from sessions.sim.experts import PIECE_BYTES, Blob, Layout, Piece

_MAGIC: Final = b"\x93NUMPY\x01\x00"
_ALIGNMENT: Final = 64  # NumPy fills a header up to a multiple of it
_INT_BYTES: Final = 4
_TRIPLE: Final = 3


class NpyLayout:
    """The rows of one model at one width, as bytes of an `.npy` file."""

    def __init__(self, *, layers: int, topk: int, experts: int, seed: int, pad: int) -> None:
        """Prepare; arguments are those of `Layout`."""
        self._rows = Layout(layers=layers, topk=topk, experts=experts, seed=seed, pad=pad)
        self._shape = (layers, topk * pad)
        self.row_bytes = layers * topk * pad

    def blob(self, ids: Sequence[int], start: int = 0) -> Blob:
        """The text of the file with the rows of `ids[start:]`; `ids` is shared, not copied."""
        return Blob(self, ids, start)

    def header(self, rows: int) -> bytes:
        """The bytes before the first row."""
        shape = (rows, *self._shape)
        text = f"{{'descr': '|u1', 'fortran_order': False, 'shape': {shape}, }}"
        size = len(_MAGIC) + 2 + len(text) + 1
        text += " " * (-size % _ALIGNMENT) + "\n"
        return _MAGIC + len(text).to_bytes(2, "little") + text.encode()

    def text_chars(self, rows: int) -> int:
        """Characters of the text of so many rows."""
        return (len(self.header(rows)) + rows * self.row_bytes + 2) // _TRIPLE * 4

    def texts(self, ids: Sequence[int], start: int) -> Iterator[Piece]:
        """The text in parts of any size, padding included."""
        held = self.header(max(0, len(ids) - start))
        step = max(1, PIECE_BYTES // self.row_bytes)
        for first in range(start, len(ids), step):
            held += self._rows.raw_rows(ids[: first + step], first)[::_INT_BYTES]
            whole = len(held) // _TRIPLE * _TRIPLE
            yield b2a_base64(held[:whole], newline=False)
            held = held[whole:]
        yield b2a_base64(held, newline=False)
