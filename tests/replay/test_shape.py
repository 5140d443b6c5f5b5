"""What blobs say of their shape, held against NumPy's own files."""

import base64
import io

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sessions.replay.shape import NPY_MAGIC, BlobShape, check_shape, describe, row_bytes_of


def npy(array: np.ndarray, version: tuple[int, int] | None = None) -> bytes:
    file = io.BytesIO()
    np.lib.format.write_array(file, array, version)
    return file.getvalue()


def shape_of(data: bytes) -> BlobShape:
    text = base64.b64encode(data)
    return describe(text[:256], text[-4:], len(text))


@given(data=st.binary(max_size=700).filter(lambda data: not data.startswith(NPY_MAGIC)))
@settings(derandomize=True, deadline=None)
def test_a_bare_blob_is_as_long_as_what_it_encodes(data: bytes):
    assert shape_of(data) == BlobShape(number_type="<i4", data_bytes=len(data))


@pytest.mark.parametrize("kind", ["|u1", "<u2", "<i4"])
@pytest.mark.parametrize("version", [(1, 0), (2, 0)])
@pytest.mark.parametrize("dimensions", [(12, 3, 2), (0, 3, 2), (5, 4), (7, 0, 2)])
def test_an_npy_header_is_read(kind: str, version: tuple[int, int], dimensions: tuple[int, ...]):
    data = npy(np.zeros(dimensions, kind), version)
    shape = shape_of(data)
    assert (shape.number_type, shape.dimensions, shape.flaw) == (kind, dimensions, "")
    assert shape.header_bytes + shape.data_bytes == len(data)
    assert shape.data_bytes == np.zeros(dimensions, kind).nbytes
    assert check_shape(shape, rows=dimensions[0], width_bytes=None) is None


def test_what_is_expected_is_right():
    assert check_shape(shape_of(bytes(48)), rows=3, width_bytes=16) is None
    assert check_shape(shape_of(b""), rows=0, width_bytes=16) is None
    assert row_bytes_of(shape_of(bytes(48)), 3) == 16
    assert row_bytes_of(shape_of(b""), 0) == 0


@pytest.mark.parametrize(
    ("data", "rows", "width_bytes", "told"),
    [
        (bytes(50), 3, None, "50 bytes are not 3 rows of int32"),
        (bytes(42), 3, None, "42 bytes are not 3 rows of int32"),
        (bytes(48), 0, None, "48 bytes are not 0 rows of int32"),
        (bytes(48), 3, 32, "a row has 16 bytes, it had 32 before"),
        (npy(np.zeros((4, 3, 2), "|u1")), 5, None, "the shape 4x3x2 is not 5 rows"),
        (npy(np.zeros((4,), "|u1")), 4, None, "the shape 4 is not 4 rows"),
        (npy(np.zeros((4, 2), "<f4")), 4, None, "numbers of type <f4 are not known"),
        (npy(np.zeros((4, 2), ">i4")), 4, None, "numbers of type >i4 are not known"),
        (npy(np.zeros((4, 2), "<u2"))[:-1], 4, None, "15 bytes are no 4x2 numbers of 2 bytes"),
        (npy(np.zeros((4, 2), "<u2")), 4, 8, "a row has 4 bytes, it had 8 before"),
    ],
)
def test_a_mismatch_is_named(data: bytes, rows: int, width_bytes: int | None, told: str):
    assert check_shape(shape_of(data), rows=rows, width_bytes=width_bytes) == told


def fortran() -> bytes:
    return npy(np.asfortranarray(np.zeros((4, 2), "|u1")))


def spoilt(old: bytes, new: bytes) -> bytes:
    return npy(np.zeros((4, 2), "|u1")).replace(old, new)


@pytest.mark.parametrize(
    "data",
    [
        fortran(),
        npy(np.zeros((4, 2), "|u1"))[:100],
        b"\x93NUMPY\x01\x00\xff\xff",
        b"\x93NUMPY\x01\x00\x00\x00",
        spoilt(b"(4, 2)", b"(4,-2)"),
        spoilt(b"(4, 2)", b"[4, 2]"),
        spoilt(b"'descr'", b"'dessr'"),
        spoilt(b"'|u1'", b"[0,1]"),
        spoilt(b"False", b"[][0]"),
        spoilt(b"False", b"exit("),
        spoilt(b"False", b"\xff\xff\xff\xff\xff"),
        npy(np.zeros(3, [("a name that is long", "<i4")] * 1 + [("b" * 200, "<i4")])),
    ],
)
def test_a_header_that_cannot_be_used_is_a_flaw(data: bytes):
    shape = shape_of(data)
    assert shape.flaw == "its .npy header cannot be read"
    assert check_shape(shape, rows=4, width_bytes=None) == shape.flaw


def test_characters_that_are_no_base64_are_no_header():
    assert describe(b"!!!!", b"!!!!", 4).data_bytes == 3


@given(st.binary(max_size=150))
@settings(derandomize=True, deadline=None)
def test_no_header_breaks_the_reader(rest: bytes):
    shape = shape_of(b"\x93NUMPY\x01\x00" + rest)
    assert shape.flaw or shape.dimensions is not None


def test_no_byte_is_no_row():
    assert check_shape(describe(b"", b"", 0), rows=0, width_bytes=None) is None
    assert check_shape(describe(b"", b"", 0), rows=5, width_bytes=None) == (
        "0 bytes are not 5 rows of int32"
    )
