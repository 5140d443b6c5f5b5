"""The chunk scanner: the exact end, in any pieces, the same end as llhttp's, and its limits."""

from __future__ import annotations

import itertools

import httptools
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sessions.errors.protocol import BadBodyError
from sessions.errors.unseen import LocalProtocolError
from sessions.wire.chunked import LINE_LIMIT_BYTES, ChunkedScanner

MORE = ChunkedScanner.MORE
REQUEST = b"POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n"
BODIES = [
    b"0\r\n\r\n",
    b"5\r\nhello\r\n0\r\n\r\n",
    b"5;name=value;flag\r\nhello\r\n00\r\n\r\n",
    b'3;q="a;b"\r\n\r\n\r\r\n1\r\n\n\r\n000;end\r\nA: b\r\nC:\r\n\r\n',
    b"A\r\n0\r\n\r\n0\r\n\r\n\r\na\r\n0123456789\r\n0\r\nX-Trailer: y\r\n\r\n",
    b"0000000000000002\r\n\r\n\r\n0000000000000000\r\n\r\n",
]


def end_in_pieces(pieces: list[bytes]) -> int:
    """Where the scanner ends the body, as an index into the joined pieces."""
    scanner, before = ChunkedScanner(), 0
    for piece in pieces:
        end = scanner.feed(piece)
        if end != MORE:
            return before + end
        before += len(piece)
    return MORE


def end_of_llhttp(body: bytes) -> int:
    """How many bytes of the body llhttp reads until it says that the message is complete."""
    done: list[bool] = []

    class Protocol:
        def on_message_complete(self) -> None:
            done.append(True)

    parser = httptools.HttpRequestParser(Protocol())
    parser.feed_data(REQUEST)
    for index in range(len(body)):
        parser.feed_data(body[index : index + 1])
        if done:
            return index + 1
    return MORE


@pytest.mark.parametrize("body", BODIES)
@pytest.mark.parametrize("rest", [b"", b"GET / HTTP/1.1\r\n\r\n", b"\r\n", b"0\r\n\r\n"])
def test_ends_at_the_last_byte_when_fed_whole(body: bytes, rest: bytes):
    assert ChunkedScanner().feed(body + rest) == len(body)
    assert end_of_llhttp(body) == len(body)


@pytest.mark.parametrize("body", BODIES)
def test_ends_at_the_last_byte_when_cut_in_two_anywhere(body: bytes):
    whole = body + b"rest"
    for cut in range(len(whole) + 1):
        assert end_in_pieces([whole[:cut], whole[cut:]]) == len(body)


@pytest.mark.parametrize("body", BODIES)
def test_ends_at_the_last_byte_when_cut_in_three_anywhere(body: bytes):
    for first in range(len(body) + 1):
        for second in range(first, len(body) + 1):
            pieces = [body[:first], body[first:second], body[second:]]
            assert end_in_pieces(pieces) == len(body)


@pytest.mark.parametrize("body", BODIES)
def test_wants_more_until_the_last_byte_when_fed_byte_by_byte(body: bytes):
    scanner = ChunkedScanner()
    assert scanner.feed(b"") == MORE
    for index in range(len(body) - 1):
        assert scanner.feed(body[index : index + 1]) == MORE
        assert scanner.feed(b"") == MORE
    assert scanner.feed(body[-1:]) == 1


TOKENS = st.text("abcXYZ019!#$%&'*+-.^_`|~", min_size=1, max_size=6)
EXTENSIONS = st.lists(
    st.one_of(
        TOKENS,
        st.tuples(TOKENS, TOKENS).map("=".join),
        st.tuples(TOKENS, st.text("ab; =:,", max_size=5)).map(lambda p: f'{p[0]}="{p[1]}"'),
    ),
    max_size=3,
).map(lambda found: "".join(f";{extension}" for extension in found).encode())
CHUNKS = st.tuples(
    st.binary(min_size=1, max_size=40), EXTENSIONS, st.sampled_from(["x", "X", "05x"])
)
TRAILERS = st.lists(
    st.tuples(TOKENS, st.text("ab c:;\t", max_size=8).map(str.strip)).map(
        lambda p: f"{p[0]}: {p[1]}\r\n".encode()
    ),
    max_size=3,
)


def body_of(chunks: list[tuple[bytes, bytes, str]], last: bytes, trailers: list[bytes]) -> bytes:
    parts = [
        format(len(data), form).encode() + extension + b"\r\n" + data + b"\r\n"
        for data, extension, form in chunks
    ]
    return b"".join([*parts, b"0", last, b"\r\n", *trailers, b"\r\n"])


BODY = st.builds(body_of, st.lists(CHUNKS, max_size=5), EXTENSIONS, TRAILERS)


@settings(derandomize=True, deadline=None)
@given(BODY, st.binary(max_size=12), st.lists(st.integers(0, 400), max_size=6))
def test_agrees_with_llhttp_on_the_end_of_every_valid_body(
    body: bytes, rest: bytes, cuts: list[int]
):
    whole = body + rest
    edges = [0, *sorted(min(cut, len(whole)) for cut in cuts), len(whole)]
    pieces = [whole[a:b] for a, b in itertools.pairwise(edges)]
    assert end_of_llhttp(body) == len(body)
    assert end_in_pieces(pieces) == len(body)
    assert end_in_pieces([whole[i : i + 1] for i in range(len(whole))]) == len(body)


@settings(derandomize=True, deadline=None, max_examples=500)
@given(
    BODY,
    st.integers(0, 400),
    st.sampled_from([b"", b"\r", b"\n", b"0", b" ", b";", b"\0", b"-", b"\r\n", b"g", b"\r\n\r\n"]),
    st.booleans(),
)
def test_never_ends_elsewhere_than_llhttp_when_both_take_a_damaged_body(
    body: bytes,
    at: int,
    damage: bytes,
    replace: bool,  # noqa: FBT001
):
    at = min(at, len(body))
    damaged = body[:at] + damage + body[at + replace :]
    try:
        theirs = end_of_llhttp(damaged)
    except httptools.HttpParserError:
        return
    try:
        ours = ChunkedScanner().feed(damaged)
    except BadBodyError:
        return
    assert ours == theirs


@pytest.mark.parametrize(
    "body",
    [
        b"5\nhello\r\n",
        b"+5\r\nhello\r\n",
        b"-5\r\n",
        b"0x5\r\nhello\r\n",
        b" 5\r\nhello\r\n",
        b"5 \r\nhello\r\n",
        b"\t5\r\n",
        b"1_0\r\n",
        b"\r\n",
        b";a\r\n",
        b"g\r\n",
        b"\xd9\xa3\r\n",
        b"5\r\r\nhello",
        b"5;a\rb\r\nhello",
        b"5;a\nb\r\nhello",
        b"2\r\nab0\r\n\r\n",
        b"2\r\nab\n\r",
        b"2\r\nab\rx",
        b"2\r\nabx\n",
        b"2\r\nab\n0\r\n\r\n",
        b"0\n\r\n",
        b"0\r\n\n",
        b"0\r\nA: b\n\r\n",
        b"0\r\nA: b\rc\r\n\r\n",
        b"0\r\n\r\r\n",
    ],
)
def test_refuses_broken_framing_in_the_same_words_however_it_is_cut(body: bytes):
    with pytest.raises(BadBodyError) as whole:
        end_in_pieces([body])
    pieces = [[body[:cut], body[cut:]] for cut in range(1, len(body))]
    for cut in [*pieces, [body[i : i + 1] for i in range(len(body))]]:
        with pytest.raises(BadBodyError) as caught:
            end_in_pieces(cut)
        assert str(caught.value) == str(whole.value)


@pytest.mark.parametrize("begun", [b"hello", b"5x", b" ", b"5 ", b"\r", b";", b"5;a\rb", b"0" * 17])
def test_refuses_a_line_at_its_first_wrong_byte(begun: bytes):
    with pytest.raises(BadBodyError):
        ChunkedScanner().feed(begun)
    assert ChunkedScanner().feed(b"5") == MORE
    assert ChunkedScanner().feed(b"5;a b\r") == MORE


def test_counts_the_data_that_was_announced_and_nothing_else():
    scanner = ChunkedScanner()
    scanner.feed(b"a;extension=1\r\n0123")
    assert scanner.data_bytes == 10
    scanner.feed(b"456789\r\n1000\r")
    assert scanner.data_bytes == 10
    scanner.feed(b"\n")
    assert scanner.data_bytes == 10 + 0x1000


def test_takes_extensions_at_their_limit_and_refuses_one_byte_more():
    many = b"1;ab\r\nx\r\n" * (LINE_LIMIT_BYTES // 3)
    rest = LINE_LIMIT_BYTES % 3
    assert ChunkedScanner().feed(many + b"1" + b";" * rest + b"\r\n") == MORE
    with pytest.raises(BadBodyError, match="extensions"):
        ChunkedScanner().feed(many + b"1" + b";" * (rest + 1) + b"\r\n")


def test_takes_the_largest_chunk_size_and_refuses_one_digit_more():
    scanner = ChunkedScanner()
    assert scanner.feed(b"f" * 16 + b"\r\nabc") == MORE
    assert scanner.feed(b"x" * 1000) == MORE
    with pytest.raises(BadBodyError, match="16 digits"):
        ChunkedScanner().feed(b"0" * 17 + b"\r\n")


def test_takes_a_line_at_the_limit_and_refuses_one_byte_more():
    line = b"1;" + b"a" * (LINE_LIMIT_BYTES - 4) + b"\r\n"
    assert ChunkedScanner().feed(line) == MORE
    assert end_in_pieces([line[:-1], line[-1:] + b"x\r\n0\r\n\r\n"]) == len(line) + 8
    with pytest.raises(BadBodyError, match=f"{LINE_LIMIT_BYTES} bytes"):
        ChunkedScanner().feed(b"1;a" + line[2:])


def test_refuses_an_endless_line_before_it_ends():
    scanner = ChunkedScanner()
    assert scanner.feed(b"1;" + b"a" * (LINE_LIMIT_BYTES - 2)) == MORE
    with pytest.raises(BadBodyError):
        scanner.feed(b"a")


def test_takes_trailers_at_the_limit_and_refuses_one_byte_more():
    line = b"A: bcd\r\n"
    trailers = line * (LINE_LIMIT_BYTES // len(line) - 1)
    assert ChunkedScanner().feed(b"0\r\n" + trailers + b"A: \r\n" + b"\r\n") != MORE
    last = b"A: b" + b"c" * (len(line) - 8) + b"\r\n"
    assert len(trailers + last) + 2 == LINE_LIMIT_BYTES
    whole = b"0\r\n" + trailers + last + b"\r\n"
    assert ChunkedScanner().feed(whole) == len(whole)
    with pytest.raises(BadBodyError):
        ChunkedScanner().feed(b"0\r\n" + trailers + b"A" + last + b"\r\n")


def test_refuses_to_be_fed_when_the_body_has_ended():
    scanner = ChunkedScanner()
    scanner.feed(b"0\r\n\r\n")
    with pytest.raises(LocalProtocolError):
        scanner.feed(b"")


def test_holds_no_data_bytes():
    scanner = ChunkedScanner()
    scanner.feed(b"100000\r\n" + b"x" * 65536)
    assert scanner._line == b""
