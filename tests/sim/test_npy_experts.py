"""Experts as vLLM sends them: a file that NumPy reads, with the rows that the other form has."""

import io
from base64 import b64decode

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sessions.sim.experts import PIECE_BYTES, Layout
from sessions.sim.npy_experts import NpyLayout


def text_of(layout: NpyLayout, ids: list[int], start: int = 0) -> bytes:
    return b"".join(layout.blob(ids, start).pieces())


def read(text: bytes) -> np.ndarray:
    found: np.ndarray = np.load(io.BytesIO(b64decode(text, validate=True)))
    return found


@given(
    layers=st.integers(1, 5),
    topk=st.integers(1, 5),
    pad=st.integers(1, 3),
    ids=st.lists(st.integers(0, 151_668), max_size=40),
    start=st.integers(0, 45),
)
@settings(derandomize=True, deadline=None, max_examples=100)
def test_the_text_is_a_file_of_the_rows(
    layers: int, topk: int, pad: int, ids: list[int], start: int
):
    shape = {"layers": layers, "topk": topk, "experts": 256, "seed": 3, "pad": pad}
    layout = NpyLayout(**shape)
    text = text_of(layout, ids, start)
    found = read(text)
    bare = np.frombuffer(Layout(**shape).raw_rows(ids, start), "<i4")
    assert len(text) == len(layout.blob(ids, start))
    assert found.dtype == np.uint8
    assert found.shape == (max(0, len(ids) - start), layers, topk * pad)
    assert found.ravel().tolist() == bare.tolist()


@pytest.mark.parametrize("rows", [0, 1, 9, 10, 12345])
def test_the_header_is_the_one_that_numpy_writes(rows: int):
    file = io.BytesIO()
    np.save(file, np.zeros((rows, 3, 2), np.uint8))
    layout = NpyLayout(layers=3, topk=2, experts=8, seed=0, pad=1)
    header = layout.header(rows)
    assert file.getvalue()[: len(header)] == header


def test_a_long_text_comes_in_pieces():
    layout = NpyLayout(layers=48, topk=8, experts=128, seed=0, pad=1)
    ids = [(index * 7919) % 151_669 for index in range(3000)]
    pieces = list(layout.blob(ids).pieces())
    assert len(pieces) > 5
    assert max(map(len, pieces)) <= 2 * PIECE_BYTES
    assert read(b"".join(pieces)).shape == (3000, 48, 8)
