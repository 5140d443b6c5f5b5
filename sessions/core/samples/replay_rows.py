"""Replay rows as int32, decoded piece by piece from base64 text.

A piece is what one read of the store gives at most. Each is found from the range of decoded bytes
that it covers: three of them stand in four characters, so a piece that begins within a group reads
that group whole and drops what is before. Numbers of one or two bytes are widened.

Must not know turns or samples.

Spec: docs/samples.md#replay-rows
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

import pybase64

from sessions.core.samples.layout import Piece
from sessions.core.samples.replay_tensor import RowPatch
from sessions.replay.blobs import ReplayBlob
from sessions.replay.shape import NUMBER_BYTES, RAW_TYPE

# Decoded bytes of a piece of int32: whole numbers, and with a group more at either end still no
# more than 1 MiB of text.
PIECE_BYTES: Final = 12 * 65535
_INT32_BYTES: Final = 4


def rows_of(patch: RowPatch) -> Iterator[Piece]:
    """Decode the rows of one patch.

    Reads, waiting for the disk, and decodes: for threads.

    Args:
        patch: Pinned, or never discarded.

    Yields:
        Little-endian int32, in pieces of about `PIECE_BYTES`.

    Raises:
        ReplayStoreError: The disk failed.
        ValueError: The text is no base64.
    """
    # Widened, a piece is no larger than others.
    number = NUMBER_BYTES[patch.number_type]
    step = PIECE_BYTES // _INT32_BYTES * number
    for start in range(patch.start, patch.stop, step):
        piece = decoded(patch.source, start, min(start + step, patch.stop))
        yield piece if patch.number_type == RAW_TYPE else _widened(piece, patch.number_type)


def decoded(source: ReplayBlob, start: int, stop: int) -> Piece:
    """The decoded bytes [start, stop) of a base64 text.

    Raises:
        ReplayStoreError: The disk failed.
        ValueError: The text is no base64 there, or ends before.
    """
    first = start // 3
    text = source.read(first * 4, min(source.size_bytes, (stop + 2) // 3 * 4))
    whole = pybase64.b64decode(text, validate=True)
    skipped = start - first * 3
    wanted = stop - start
    if len(whole) - skipped < wanted:
        raise ValueError("the replay data ends before its last row")
    return memoryview(whole)[skipped : skipped + wanted]


def _widened(piece: Piece, number_type: str) -> Piece:
    import numpy as np  # noqa: PLC0415 - most shards never need it

    return np.frombuffer(piece, number_type).astype("<i4").data.cast("B")
