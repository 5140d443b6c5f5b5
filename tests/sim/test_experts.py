"""Experts: the text is the base64 of the rows, for every shape, and rows stay what they were."""

import struct
from base64 import b64decode

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sessions.sim.experts import PIECE_BYTES, Layout


def layout_of(
    layers: int = 4, topk: int = 2, pad: int = 1, seed: int = 0, experts: int = 128
) -> Layout:
    return Layout(layers=layers, topk=topk, experts=experts, seed=seed, pad=pad)


def text_of(layout: Layout, ids: list[int], start: int = 0) -> bytes:
    return b"".join(layout.blob(ids, start).pieces())


@given(
    layers=st.integers(1, 5),
    topk=st.integers(1, 5),
    pad=st.one_of(st.integers(1, 5), st.integers(400, 700), st.just(5_000)),
    ids=st.lists(st.integers(0, 151_668), max_size=40),
    start=st.integers(0, 45),
)
@settings(derandomize=True, deadline=None, max_examples=150)
def test_the_text_is_the_base64_of_the_rows(
    layers: int, topk: int, pad: int, ids: list[int], start: int
):
    layout = layout_of(layers, topk, pad)
    blob = layout.blob(ids, start)
    text = b"".join(blob.pieces())
    assert b64decode(text, validate=True) == layout.raw_rows(ids, start)
    assert len(text) == len(blob)
    assert blob.rows == max(0, len(ids) - start)


def test_long_narrow_blobs_cross_pieces():
    layout = layout_of(94, 8)
    ids = [(index * 7919) % 151_669 for index in range(500)]
    pieces = list(layout.blob(ids).pieces())
    assert len(pieces) > 10
    assert b64decode(b"".join(pieces), validate=True) == layout.raw_rows(ids)


@pytest.mark.parametrize("pad", [1, 100, 50_000])
def test_pieces_are_neither_tiny_nor_over_the_limit(pad: int):
    ids = list(range(2_000 if pad == 1 else 50))
    sizes = [len(piece) for piece in layout_of(48, 8, pad).blob(ids).pieces()]
    assert max(sizes) <= PIECE_BYTES
    assert sum(sizes) / len(sizes) > PIECE_BYTES / 4


@given(
    ids=st.lists(st.integers(0, 1000), min_size=1, max_size=30),
    more=st.lists(st.integers(0, 1000), max_size=30),
)
@settings(derandomize=True, deadline=None)
def test_rows_of_earlier_tokens_stay_when_a_session_grows(ids: list[int], more: list[int]):
    layout = layout_of()
    assert layout.raw_rows(ids + more).startswith(layout.raw_rows(ids))
    assert (
        layout.raw_rows(ids + more, len(ids))
        == layout.raw_rows(ids + more)[len(ids) * layout.row_bytes :]
    )


def test_rows_differ_by_token_position_and_seed():
    rows = layout_of().raw_rows([5, 5, 6])
    size = len(rows) // 3
    assert rows[:size] != rows[size : 2 * size] != rows[2 * size :]
    assert layout_of().raw_rows([6]) != layout_of().raw_rows([5])
    assert layout_of(seed=1).raw_rows([5]) != layout_of().raw_rows([5])


def test_rows_are_the_same_in_every_process():
    assert layout_of(2, 2).raw_rows([7]) == struct.pack("<4i", *EXPERTS_OF_TOKEN_7)


EXPERTS_OF_TOKEN_7 = (32, 91, 115, 62)


@pytest.mark.parametrize("experts", [1, 3, 256])
def test_expert_ids_are_below_their_number(experts: int):
    raw = layout_of(40, 8, experts=experts).raw_rows([1, 2, 3])
    found = struct.unpack(f"<{len(raw) // 4}i", raw)
    assert set(found) <= set(range(experts))
    assert len(set(found)) > experts // 2


def test_what_is_kept_of_wide_rows_is_bounded():
    layout = layout_of(pad=2000)
    for _ in layout.blob(list(range(200))).pieces():
        assert len(layout._periods) <= 64


def test_a_flaw_is_one_character_where_it_was_wanted():
    layout = layout_of(48, 8)
    ids = list(range(300))
    good = text_of(layout, ids)
    at = len(good) // 2
    bad = b"".join(layout.blob(ids).flawed(at).pieces())
    assert bad == good[:at] + b"!" + good[at + 1 :]
