"""What a replay blob says of its own shape, by its size, its first and its last characters.

SGLang's blobs are the base64 text of bare int32 numbers: their size is all that they tell. vLLM's
are the text of an `.npy` file, whose header names type and shape. Nothing is decoded but that
header, and it is read as data, never run.

Must not know tokens or turns: the caller says how many rows there must be.

Spec: docs/samples.md#replay-rows
"""

from __future__ import annotations

import ast
import binascii
import math
from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Final

NPY_MAGIC: Final = b"\x93NUMPY"
# Types of numbers that fit an int32, and their sizes in bytes; the first character is the order of
# bytes (`|`: a single one).
NUMBER_BYTES: Final[Mapping[str, int]] = MappingProxyType({"|u1": 1, "<u2": 2, "<i4": 4})
RAW_TYPE: Final = "<i4"
_GROUP: Final = 4  # characters of base64, for three bytes
_V1: Final = 1
_MIN_RANK: Final = 2


@dataclass(frozen=True, slots=True, kw_only=True)
class BlobShape:
    """What is known of a blob.

    Attributes:
        number_type: Of its numbers, as NumPy writes it; "<i4" for a bare blob.
        dimensions: The shape in an `.npy` header; None for a bare blob.
        header_bytes: Decoded bytes before the first number.
        data_bytes: Decoded bytes of the numbers.
        flaw: Why the header cannot be used, in words; empty if it can, or if there is none.
    """

    number_type: str = RAW_TYPE
    dimensions: tuple[int, ...] | None = None
    header_bytes: int = 0
    data_bytes: int
    flaw: str = ""


def describe(head: bytes, tail: bytes, size_bytes: int) -> BlobShape:
    """Say what a blob is.

    Args:
        head: Its first characters, 256 or all.
        tail: Its last characters, 4 or all.
        size_bytes: Characters in all.

    Returns:
        The shape; what is wrong with an `.npy` header stands in `flaw`.
    """
    padding = len(tail) - len(tail.rstrip(b"="))
    decoded = max(0, size_bytes // _GROUP * 3 - padding)
    try:
        start = binascii.a2b_base64(head[: len(head) // _GROUP * _GROUP])
    except binascii.Error:
        start = b""
    if not start.startswith(NPY_MAGIC):
        return BlobShape(data_bytes=decoded)
    try:
        return _npy_shape(start, decoded)
    except (ValueError, SyntaxError, TypeError, LookupError, MemoryError, RecursionError):
        return BlobShape(data_bytes=decoded, flaw="its .npy header cannot be read")


def row_bytes_of(shape: BlobShape, rows: int) -> int:
    """Decoded bytes of one row of so many; 0 if there are none."""
    return shape.data_bytes // rows if rows else 0


def check_shape(shape: BlobShape, *, rows: int, width_bytes: int | None) -> str | None:
    """Compare a blob with what it must be.

    Args:
        shape: The blob's.
        rows: Rows that it must have.
        width_bytes: Bytes of a row in an earlier blob of the session, None if there was none.

    Returns:
        What is wrong, in words that follow the field's name; None if nothing is.
    """
    number = NUMBER_BYTES.get(shape.number_type, 0)
    wrong = _flaw_of(shape, rows, number)
    if wrong:
        return wrong
    width = row_bytes_of(shape, rows)
    if width_bytes and rows and width != width_bytes:
        return f"a row has {width} bytes, it had {width_bytes} before"
    return None


def _flaw_of(shape: BlobShape, rows: int, number: int) -> str:
    if shape.flaw or not number:
        return shape.flaw or f"numbers of type {shape.number_type} are not known"
    if shape.dimensions is None:
        is_whole = shape.data_bytes % (rows * number) == 0 if rows else not shape.data_bytes
        is_there = bool(shape.data_bytes) == bool(rows)  # nothing is a multiple of any row
        return (
            ""
            if is_whole and is_there
            else f"{shape.data_bytes} bytes are not {rows} rows of int32"
        )
    told = "x".join(map(str, shape.dimensions))
    if len(shape.dimensions) < _MIN_RANK or shape.dimensions[0] != rows:
        return f"the shape {told} is not {rows} rows"
    if math.prod(shape.dimensions) * number != shape.data_bytes:
        return f"{shape.data_bytes} bytes are no {told} numbers of {number} bytes"
    return ""


def _npy_shape(start: bytes, decoded: int) -> BlobShape:
    """The format of NumPy's NEP 1: magic, version, length of the text, the text of a dict."""
    size_bytes = 2 if start[len(NPY_MAGIC)] == _V1 else 4
    text_at = len(NPY_MAGIC) + 2 + size_bytes
    header_bytes = text_at + int.from_bytes(start[text_at - size_bytes : text_at], "little")
    if header_bytes > min(len(start), decoded):
        raise ValueError("cut")
    told = ast.literal_eval(start[text_at:header_bytes].decode("ascii").strip())
    dimensions, number_type = told["shape"], told["descr"]
    if not isinstance(number_type, str) or told["fortran_order"] is not False:
        raise ValueError("no plain array in C order")
    if not isinstance(dimensions, tuple) or not all(type(n) is int and n >= 0 for n in dimensions):
        raise ValueError("no shape")
    return BlobShape(
        number_type=number_type,
        dimensions=dimensions,
        header_bytes=header_bytes,
        data_bytes=decoded - header_bytes,
    )
