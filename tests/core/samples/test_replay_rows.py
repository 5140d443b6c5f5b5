"""Rows come out as they went in, whatever part of them is asked for."""

from __future__ import annotations

import base64

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sessions.core.samples.replay_rows import DecodedRows
from sessions.core.samples.replay_tensor import RowPatch
from sessions.replay.shape import NUMBER_BYTES, describe
from sessions.replay.taken import InlineBlob
from tests.support.samples import npy_of, rows_for


class WatchedBlob(InlineBlob):
    """Notes what is read of it; on a disk if told so."""

    def __init__(self, text: bytes, *, is_on_disk: bool = False) -> None:
        super().__init__(text)
        self.is_on_disk = is_on_disk
        self.reads: list[tuple[int, int]] = []

    def read_nowait(self, start: int, stop: int) -> bytes | None:  # type: ignore[override]
        return None if self.is_on_disk else self.read(start, stop)

    def read(self, start: int, stop: int) -> bytes:
        assert 0 <= start <= stop <= self.size_bytes
        self.reads.append((start, stop))
        return super().read(start, stop)


@given(
    kind=st.sampled_from(sorted(NUMBER_BYTES)),
    is_npy=st.booleans(),
    data=st.data(),
)
@settings(derandomize=True, deadline=None, max_examples=300)
def test_any_range_of_any_patch_is_decoded(kind: str, data: st.DataObject, *, is_npy: bool):
    kind = kind if is_npy else "<i4"
    rows, width = data.draw(st.integers(0, 9)), data.draw(st.integers(1, 7))
    numbers = (np.arange(rows * width) % 251 * (1 if kind == "|u1" else 257)).astype(kind)
    encoded = npy_of(numbers.reshape(rows, width)) if is_npy else numbers.tobytes()
    text = base64.b64encode(encoded)
    header_bytes = describe(text[:256], text[-4:], len(text)).header_bytes
    first = data.draw(st.integers(0, rows))
    last = data.draw(st.integers(first, rows))
    size = NUMBER_BYTES[kind] * width
    patch = RowPatch(
        source=InlineBlob(text),
        start=header_bytes + first * size,
        stop=header_bytes + last * size,
        number_type=kind,
    )
    decoded = DecodedRows(patch)
    wanted = numbers[first * width : last * width].astype("<i4").tobytes()
    assert decoded.size_bytes == len(wanted)
    start = data.draw(st.integers(0, len(wanted)))
    stop = data.draw(st.integers(start, len(wanted)))
    assert bytes(decoded.read(start, stop)) == wanted[start:stop]
    found = decoded.read_nowait(start, stop)
    assert found is not None
    assert bytes(found) == wanted[start:stop]


def patch_of(blob: InlineBlob, stop: int) -> RowPatch:
    return RowPatch(source=blob, start=0, stop=stop, number_type="<i4")


def test_no_more_is_read_than_a_range_needs():
    rows = rows_for(900, 25, 10)
    blob = WatchedBlob(base64.b64encode(rows.tobytes()))
    decoded = DecodedRows(patch_of(blob, 800 * 1000))
    decoded.read(131072, 262144)
    decoded.read(799_000, 800_000)
    assert blob.reads == [(174760, 349528), (1065332, 1066668)]


def test_rows_on_a_disk_are_left_to_a_thread():
    blob = WatchedBlob(base64.b64encode(bytes(range(12))), is_on_disk=True)
    decoded = DecodedRows(patch_of(blob, 12))
    assert decoded.read_nowait(0, 12) is None
    assert bytes(decoded.read(4, 8)) == bytes(range(4, 8))


def test_a_text_that_is_no_base64_is_an_error():
    decoded = DecodedRows(patch_of(InlineBlob(b"AAAA!!!!AAAA"), 8))
    with pytest.raises(ValueError, match=r"."):
        decoded.read(0, 8)
