"""Replay rows as int32, read as if they were stored decoded.

What a sample sends is never made as a whole: any range of the int32 bytes is found in the base64
text, read and decoded. Three bytes stand in four characters, so a range that begins within a group
reads that group whole and drops what is before. Numbers of one or two bytes are widened.

Must not know turns or samples.

Spec: docs/samples.md#replay-rows
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

import pybase64

from sessions.core.samples.replay_tensor import RowPatch
from sessions.replay.shape import NUMBER_BYTES, RAW_TYPE

_INT32_BYTES: Final = 4


class DecodedRows:
    """The rows of one patch, little-endian int32; reads like a `ReplayBlob`, half a MiB at most.

    Its patch's source must stay pinned while it is read.
    """

    __slots__ = ("_number_bytes", "_patch", "_widen")

    def __init__(self, patch: RowPatch) -> None:
        """Prepare; may import numpy, so for threads."""
        self._patch = patch
        self._number_bytes = NUMBER_BYTES[patch.number_type]
        self._widen = None
        if patch.number_type != RAW_TYPE:
            self._widen = _widening(patch.number_type)

    @property
    def size_bytes(self) -> int:
        """Bytes of all rows."""
        return (self._patch.stop - self._patch.start) // self._number_bytes * _INT32_BYTES

    def read_nowait(self, start: int, stop: int) -> memoryview | None:
        """Bytes [start, stop) if no disk is waited for, else None.

        Raises:
            ValueError: The text is no base64.
        """
        text = self._patch.source.read_nowait(*self._range_of(start, stop))
        return None if text is None else self._decoded(text, start, stop)

    def read(self, start: int, stop: int) -> memoryview:
        """The same, waiting for the disk. For threads.

        Raises:
            ReplayStoreError: The disk failed.
            ValueError: The text is no base64.
        """
        text = self._patch.source.read(*self._range_of(start, stop))
        return self._decoded(text, start, stop)

    def _encoded_range_of(self, start: int, stop: int) -> tuple[int, int]:
        """The encoded bytes of the numbers of which a range of int32 bytes is part."""
        first = start // _INT32_BYTES * self._number_bytes
        last = -(-stop // _INT32_BYTES) * self._number_bytes
        return self._patch.start + first, self._patch.start + last

    def _range_of(self, start: int, stop: int) -> tuple[int, int]:
        """The characters of those."""
        first, last = self._encoded_range_of(start, stop)
        return first // 3 * 4, -(-last // 3) * 4

    def _decoded(self, text: bytes | memoryview, start: int, stop: int) -> memoryview:
        first, last = self._encoded_range_of(start, stop)
        whole = memoryview(pybase64.b64decode(text, validate=True))
        numbers = whole[first % 3 : first % 3 + last - first]
        if self._widen is not None:
            numbers = self._widen(numbers)
        skipped = start % _INT32_BYTES
        return numbers[skipped : skipped + stop - start]


def _widening(number_type: str) -> Callable[[memoryview], memoryview]:
    """Makes int32 of the bytes of other numbers."""
    import numpy as np  # noqa: PLC0415 - bare rows, which are int32, do without it

    return lambda numbers: np.frombuffer(numbers, number_type).astype("<i4").data.cast("B")
