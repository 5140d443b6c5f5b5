"""The head gate: an answer does not depend on the pieces in which a head arrives."""

from __future__ import annotations

import pytest

from sessions.errors.client_visible import RequestError
from sessions.errors.protocol import BadHeadError, HeadTooLargeError
from sessions.wire.gate import read_head
from tests.support.request_heads import BY_HAND, BY_LLHTTP, raw_of

LIMIT = 65536


def refusal_of(raw: bytes, piece_bytes: int, limit: int = LIMIT) -> tuple[type, str]:
    """How a head is refused that arrives in pieces, as a connection reads it."""
    seen = 0
    for end in range(piece_bytes, len(raw) + piece_bytes, piece_bytes):
        try:
            assert read_head(raw[:end], seen, limit) is None
        except RequestError as error:
            return type(error), str(error)
        seen = max(0, len(raw[:end]) - 3)
    raise AssertionError("it was not refused")


@pytest.mark.parametrize("raw", BY_LLHTTP + [raw for raw, _ in BY_HAND])
def test_a_refusal_is_the_same_for_a_head_that_comes_whole_or_in_pieces(raw: bytes):
    whole = refusal_of(raw, len(raw))
    assert [refusal_of(raw, piece_bytes) for piece_bytes in (1, 2, 3, 7)] == [whole] * 4


@pytest.mark.parametrize("feed_at", [0, 40, 97, 98, 99, 100, 101, 120])
def test_which_of_two_refusals_comes_does_not_depend_on_the_pieces(feed_at: int):
    raw = bytearray(raw_of(b"A: " + b"b" * 200))
    raw[feed_at] = ord("\n")
    expected = BadHeadError if feed_at < 100 else HeadTooLargeError
    for piece_bytes in (1, 5, 64, len(raw)):
        assert refusal_of(bytes(raw), piece_bytes, 100)[0] is expected
