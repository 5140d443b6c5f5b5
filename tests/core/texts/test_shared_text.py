"""What turns share of long texts, and that the texts stay the same whatever is shared."""

from __future__ import annotations

import json
from array import array

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sessions.core.texts import shared_text
from sessions.core.texts.shared_text import PIECE_BYTES, IdsText, share, with_known_parts

LONG = b"x" * PIECE_BYTES


@pytest.fixture
def small_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shared_text, "PIECE_BYTES", 8)


def ids_of(text: IdsText) -> list[int]:
    found: list[int] = json.loads(b"".join(text.json_parts))
    return found


def is_same_object(one: bytes, two: bytes) -> bool:
    return one is two


def test_a_longer_text_has_the_pieces_of_the_shorter_one():
    first = share(LONG + b"first", ())
    second = share(LONG + b"first" + b"second", first)
    assert is_same_object(second[0], first[0])
    assert second[1:] == (b"second",)


def test_a_small_piece_is_written_anew_with_what_follows():
    first = share(b"small", ())
    assert share(b"small and more", first) == (b"small and more",)


def test_a_text_that_differs_within_a_piece_shares_those_before():
    first = share(LONG + LONG, share(LONG, ()))
    other = share(LONG + b"other", first)
    assert is_same_object(other[0], first[0])
    assert other[1:] == (b"other",)


def test_the_same_text_again_shares_all_and_an_empty_one_has_no_pieces():
    first = share(LONG, ())
    assert share(LONG, first) == first
    assert share(b"", first) == ()


@pytest.mark.usefixtures("small_pieces")
@settings(derandomize=True, deadline=None)
@given(st.lists(st.tuples(st.integers(0, 60), st.binary(max_size=30)), max_size=8))
def test_pieces_are_the_text_and_few(changes: list[tuple[int, bytes]]):
    text = b""
    pieces: tuple[bytes, ...] = ()
    for kept, more in changes:
        text = text[:kept] + more
        pieces = share(text, pieces)
        assert b"".join(pieces) == text
        assert all(len(piece) >= shared_text.PIECE_BYTES for piece in pieces[:-1])
        assert all(pieces)


def test_ids_that_follow_share_the_text_of_those_before():
    before = array("I", range(10_000))
    first = IdsText().followed(before, 0)
    second = first.followed(before + array("I", [5, 6]), len(before))
    assert is_same_object(second.pieces[0], first.pieces[0])
    assert second.pieces[1:] == (b",5,6",)
    assert ids_of(second) == [*range(10_000), 5, 6]


def test_ids_that_go_back_into_a_piece_are_written_anew():
    first = IdsText().followed(array("I", range(10_000)), 0)
    other = array("I", [*range(9_999), 7])
    assert ids_of(first.followed(other, 9_999)) == other.tolist()


def test_no_ids_are_an_empty_array():
    assert ids_of(IdsText()) == ids_of(IdsText().followed(array("I"), 0)) == []


@pytest.mark.usefixtures("small_pieces")
@settings(derandomize=True, deadline=None)
@given(
    st.lists(
        st.tuples(st.integers(0, 40), st.lists(st.integers(0, 1 << 31), max_size=9)), max_size=9
    )
)
def test_the_text_of_ids_is_their_json_whatever_is_shared(changes: list[tuple[int, list[int]]]):
    ids, text = array("I"), IdsText()
    for kept, more in changes:
        kept_count = min(kept, len(ids))
        ids = ids[:kept_count] + array("I", more)
        text = text.followed(ids, kept_count)
        assert b"".join(text.json_parts) == json.dumps(ids.tolist(), separators=(",", ":")).encode()
        assert all(text.json_parts)
        assert sum(text.counts) == len(ids)
        assert all(len(piece) >= shared_text.PIECE_BYTES for piece in text.pieces[:-1])


def test_known_parts_are_the_same_objects_wherever_they_stand():
    earlier = (b"{", b"long" * 10, b"x")
    parts = (b"".join([b"lo", b"ng" + b"long" * 9]), b"new", b"".join([b"{"]))
    found = with_known_parts(parts, earlier)
    assert found == parts
    assert found[0] is earlier[1]
    assert found[1] is parts[1]
    assert with_known_parts(parts, ()) == parts
