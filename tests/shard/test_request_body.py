"""Where one request body ends, and what chunks say, in every split, and never past its end."""

from __future__ import annotations

import itertools

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sessions.errors.protocol import BadBodyError
from sessions.shard.request_body import ChunkDecoder, RequestBody
from tests.support.raw import chunked

BEHIND = b"GET /next HTTP/1.1\r\n\r\n"
CHUNKED = b"5;name=value\r\nhello\r\n1\r\n!\r\n0\r\nTrailer: x\r\n\r\n"


def feed_all(body: RequestBody, pieces: list[bytes]) -> tuple[int, list[bool]]:
    """How many bytes were taken in all, and whether the body was whole after each piece."""
    taken, states = 0, []
    for piece in pieces:
        taken += body.feed(piece)
        states.append(body.is_whole)
    return taken, states


def length(size: int) -> RequestBody:
    return RequestBody(content_length=size, chunked=False)


def by_chunks() -> RequestBody:
    return RequestBody(content_length=0, chunked=True)


def test_a_request_without_a_body_is_whole_at_once() -> None:
    body = length(0)
    assert body.is_whole
    assert body.feed(BEHIND) == 0
    assert body.size == 0


def test_a_chunked_body_is_not_whole_before_its_end() -> None:
    assert not by_chunks().is_whole
    body = by_chunks()
    assert body.feed(b"") == 0
    assert not body.is_whole


@pytest.mark.parametrize("size", [1, 2, 7])
def test_a_counted_body_ends_at_its_last_byte_in_every_split(size: int) -> None:
    data = (b"x" * size) + BEHIND
    for cut in range(len(data) + 1):
        body = length(size)
        taken, states = feed_all(body, [data[:cut], data[cut:]])
        assert taken == size
        assert states == [cut >= size, True]
        assert body.size == size


def test_a_chunked_body_ends_at_its_last_byte_in_every_split() -> None:
    data = CHUNKED + BEHIND
    for first, second in itertools.combinations_with_replacement(range(len(data) + 1), 2):
        body = by_chunks()
        taken, states = feed_all(body, [data[:first], data[first:second], data[second:]])
        assert taken == len(CHUNKED)
        assert states == [first >= len(CHUNKED), second >= len(CHUNKED), True]


def test_a_chunked_body_is_measured_by_its_data_as_it_is_announced() -> None:
    body = by_chunks()
    sizes = []
    for piece in (b"5;long=extension\r\n", b"hel", b"lo\r\n", b"a\r\n", b"0123456789\r\n0\r\n\r\n"):
        body.feed(piece)
        sizes.append(body.size)
    assert sizes == [5, 5, 5, 15, 15]
    assert body.is_whole


@settings(derandomize=True, deadline=None)
@given(
    st.binary(max_size=200),
    st.integers(1, 50),
    st.sampled_from(["length", "chunked"]),
    st.lists(st.integers(0, 400), max_size=8),
)
def test_what_is_taken_is_the_body_and_nothing_else(
    data: bytes, chunk_bytes: int, framing: str, cuts: list[int]
) -> None:
    encoded = chunked(data, chunk_bytes) if framing == "chunked" else data
    body = by_chunks() if framing == "chunked" else length(len(data))
    whole = encoded + BEHIND
    places = sorted({0, len(whole), *(cut % (len(whole) + 1) for cut in cuts)})
    taken, _ = feed_all(body, [whole[a:b] for a, b in itertools.pairwise(places)])
    assert taken == len(encoded)
    assert body.is_whole
    assert body.size == len(data)
    assert body.feed(BEHIND) == 0


@pytest.mark.parametrize("data", [b"zz\r\n", b"5\r\nhello!", b"\r\n"])
def test_broken_chunks_are_an_error(data: bytes) -> None:
    with pytest.raises(BadBodyError):
        by_chunks().feed(data)


@pytest.mark.parametrize(("is_chunked", "size"), [(False, 9), (True, 0)])
def test_it_knows_its_framing_and_what_was_announced(*, is_chunked: bool, size: int) -> None:
    body = RequestBody(content_length=size, chunked=is_chunked)
    assert (body.is_chunked, body.size) == (is_chunked, size)


# --- what chunks say

HEAD = b"POST / HTTP/1.1\r\nHost: a\r\nConnection: close\r\nTransfer-Encoding: chunked\r\n\r\n"


@pytest.mark.parametrize("piece_bytes", [1, 3, 7, 1000])
def test_chunks_are_taken_apart_in_every_split(piece_bytes: int) -> None:
    decoder = ChunkDecoder(HEAD)
    assert not decoder.is_whole
    pieces = [CHUNKED[at : at + piece_bytes] for at in range(0, len(CHUNKED), piece_bytes)]
    assert b"".join(decoder.feed(piece) for piece in pieces) == b"hello!"
    assert decoder.is_whole


@pytest.mark.parametrize("data", [b"zz\r\n", b"3\r\nabcd\r\n", chunked(b"abc", 3) + BEHIND])
def test_what_llhttp_refuses_is_refused(data: bytes) -> None:
    decoder = ChunkDecoder(HEAD)
    with pytest.raises(BadBodyError, match="malformed"):
        decoder.feed(data)


def test_a_second_request_is_none() -> None:
    """Although llhttp would go on reading: this head keeps the connection."""
    decoder = ChunkDecoder(HEAD.replace(b"Connection: close\r\n", b""))
    with pytest.raises(BadBodyError):
        decoder.feed(chunked(b"abc", 3) + b"GET")


def test_a_head_that_llhttp_refuses_is_refused() -> None:
    with pytest.raises(BadBodyError):
        ChunkDecoder(b"zz")
