"""Rows come out as they went in, whatever part of a text is asked for."""

import base64

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sessions.core.samples import replay_rows
from sessions.core.samples.replay_rows import PIECE_BYTES, decoded, rows_of
from sessions.core.samples.replay_tensor import RowPatch
from sessions.replay.shape import NUMBER_BYTES, describe
from sessions.replay.taken import READ_BYTES, InlineBlob
from tests.support.samples import blob_of, npy_of, rows_for


class WatchedBlob(InlineBlob):
    """Notes what is read of it."""

    def __init__(self, text: bytes) -> None:
        super().__init__(text)
        self.reads: list[tuple[int, int]] = []

    def read(self, start: int, stop: int) -> bytes:
        assert 0 <= start <= stop <= self.size_bytes
        assert stop - start <= READ_BYTES
        self.reads.append((start, stop))
        return super().read(start, stop)


def joined(patch: RowPatch) -> bytes:
    return b"".join(bytes(piece) for piece in rows_of(patch))


@given(st.binary(max_size=40), st.data())
@settings(derandomize=True, deadline=None)
def test_any_range_is_decoded(data: bytes, draw: st.DataObject):
    start = draw.draw(st.integers(0, len(data)))
    stop = draw.draw(st.integers(start, len(data)))
    assert bytes(decoded(blob_of(data), start, stop)) == data[start:stop]


@pytest.mark.parametrize("kind", sorted(NUMBER_BYTES))
@pytest.mark.parametrize("piece_bytes", [12, 24, 120, PIECE_BYTES])
def test_rows_of_every_type_become_int32(
    kind: str, piece_bytes: int, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(replay_rows, "PIECE_BYTES", piece_bytes)
    numbers = (np.arange(7 * 3 * 5) % 251 * (1 if kind == "|u1" else 257)).astype(kind)
    data = npy_of(numbers.reshape(7, 3, 5))
    text = base64.b64encode(data)
    shape = describe(text[:256], text[-4:], len(text))
    size = NUMBER_BYTES[kind] * 15
    for first, last in [(0, 7), (0, 0), (2, 5), (6, 7)]:
        start = shape.header_bytes + first * size
        stop = shape.header_bytes + last * size
        patch = RowPatch(source=InlineBlob(text), start=start, stop=stop, number_type=kind)
        found = np.frombuffer(joined(patch), "<i4")
        assert found.tolist() == numbers[first * 15 : last * 15].tolist()


def test_a_long_text_is_read_in_pieces_and_no_further_than_wanted():
    rows = rows_for(5000, 25, 10)
    blob = WatchedBlob(base64.b64encode(rows.tobytes()))
    stop = 4000 * 1000
    patch = RowPatch(source=blob, start=0, stop=stop, number_type="<i4")
    assert joined(patch) == rows[:4000].tobytes()
    assert len(blob.reads) == -(-stop // PIECE_BYTES)
    assert blob.reads[-1][1] == -(-stop // 3) * 4


@pytest.mark.parametrize("text", [b"AAAA!AAA", b"AAAA", b"AAAAAA=="])
def test_a_text_that_is_no_base64_or_too_short_is_an_error(text: bytes):
    with pytest.raises(ValueError, match=r"."):
        joined(RowPatch(source=InlineBlob(text), start=0, stop=8, number_type="<i4"))
