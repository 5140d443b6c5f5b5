import pytest
from httptools import HttpParserError, HttpResponseParser
from hypothesis import given, settings
from hypothesis import strategies as st

from sessions.engine.framing import (
    BodyEnd,
    ChunkedFraming,
    CloseFraming,
    Framing,
    LengthFraming,
    framing_of,
)
from sessions.errors.engine import EngineUnreachableError
from sessions.errors.unseen import LocalProtocolError
from sessions.wire.chunked import LINE_LIMIT_BYTES


def walk(framing: Framing, *pieces: bytes) -> tuple[bytes, bytes]:
    """(data, what is behind the body in its last piece)."""
    data = b""
    for piece in pieces:
        index = 0
        while index < len(piece):
            if framing.is_done:
                return data, piece[index:]
            run, index = framing.step(memoryview(piece), index)
            data += run
    return data, b""


def bytewise(raw: bytes) -> list[bytes]:
    return [bytes([byte]) for byte in raw]


@pytest.mark.parametrize(
    ("body_end", "length", "made"),
    [
        (BodyEnd.NONE, 7, LengthFraming),
        (BodyEnd.LENGTH, 7, LengthFraming),
        (BodyEnd.CHUNKED, 0, ChunkedFraming),
        (BodyEnd.CLOSE, 0, CloseFraming),
    ],
)
def test_each_end_has_its_framing(body_end: BodyEnd, length: int, made: type):
    framing = framing_of(body_end, length)
    assert isinstance(framing, made)
    assert framing.is_done is (body_end is BodyEnd.NONE)


def test_a_length_is_counted_and_what_follows_left():
    framing = LengthFraming(5)
    assert walk(framing, b"ab", b"cdefg") == (b"abcde", b"fg")
    assert framing.is_done
    framing.end()


def test_a_body_shorter_than_its_length_broke_off():
    framing = LengthFraming(5)
    walk(framing, b"ab")
    with pytest.raises(EngineUnreachableError, match="3 bytes before"):
        framing.end()


def test_the_end_of_the_connection_ends_a_body_without_length():
    framing = CloseFraming()
    assert walk(framing, b"ab", b"c") == (b"abc", b"")
    assert not framing.is_done
    framing.end()
    assert framing.is_done


CHUNKED = [
    (b"0\r\n\r\n", b""),
    (b"5\r\nhello\r\n0\r\n\r\n", b"hello"),
    (b'5;a=b;c\r\nhello\r\n6; x="y"\r\n world\r\n0;z\r\n\r\n', b"hello world"),
    (b"0000000000000005\r\nhello\r\n000\r\nT: x\r\nU: y\r\n\r\n", b"hello"),
    (b"A\r\n0123456789\r\na\r\n" + b"\r\n" * 6 + b"0\r\n\r\n", b"0123456789" + b"\r\n" * 5),
    (b"1\r\n\r\r\n1\r\n\n\r\n0\r\n\r\n", b"\r\n"),
]


@pytest.mark.parametrize(("raw", "data"), CHUNKED)
def test_chunks_are_joined_wherever_the_bytes_are_cut(raw: bytes, data: bytes):
    whole = raw + b"next"
    for cut in range(len(raw) + 1):
        framing = ChunkedFraming()
        assert walk(framing, whole[:cut], whole[cut:]) == (data, b"next")
        framing.end()
    assert walk(ChunkedFraming(), *bytewise(raw)) == (data, b"")


@pytest.mark.parametrize(("raw", "data"), CHUNKED)
def test_chunks_that_are_cut_broke_off_at_every_byte(raw: bytes, data: bytes):
    for cut in range(len(raw)):
        framing = ChunkedFraming()
        assert data.startswith(walk(framing, raw[:cut])[0])
        assert not framing.is_done
        with pytest.raises(EngineUnreachableError, match="within its chunks"):
            framing.end()


@pytest.mark.parametrize(
    "raw",
    [
        b"\r\n",
        b"g\r\n",
        b"-1\r\n",
        b"+1\r\n",
        b" 1\r\n",
        b"1 \r\n",
        b"0x1\r\n",
        b"1_0\r\n",
        b"00000000000000001\r\n",
        b";a\r\n",
        b"1\n",
        b"1\r\r\n",
        b"1;a\rb\r\n",
        b"1;a\n",
        b"1\r\naX",
        b"1\r\na\n",
        b"1\r\na\r\r\n",
        b"1\r\nab\r\n",
        b"1\r\na\r\n\r\n",
        b"0\r\na: b\n",
        b"0\r\na: b\rc\r\n",
    ],
)
def test_wrong_chunks_are_refused_however_they_are_cut(raw: bytes):
    with pytest.raises(EngineUnreachableError, match="chunks are wrong"):
        walk(ChunkedFraming(), raw)
    with pytest.raises(EngineUnreachableError, match="chunks are wrong"):
        walk(ChunkedFraming(), *bytewise(raw))


@pytest.mark.parametrize("begin", [b"1;", b"0\r\na: "], ids=["extension", "trailer"])
def test_extensions_and_trailers_have_a_limit(begin: bytes):
    fits = LINE_LIMIT_BYTES - 64
    assert not walk(ChunkedFraming(), begin + b"x" * fits)[0]
    with pytest.raises(EngineUnreachableError, match="over 16384 bytes"):
        walk(ChunkedFraming(), begin + b"x" * (LINE_LIMIT_BYTES + 64))


@pytest.mark.parametrize("line", [b"1;%s\r\na\r\n" % (b"x" * 1000), b"a: %s\r\n" % (b"x" * 1000)])
def test_many_extensions_or_trailers_have_a_limit_together(line: bytes):
    begin = b"" if line.startswith(b"1") else b"0\r\n"
    walk(ChunkedFraming(), begin + line * 15)
    with pytest.raises(EngineUnreachableError, match="over 16384 bytes"):
        walk(ChunkedFraming(), begin + line * 20)


@pytest.mark.parametrize(
    "framing",
    [LengthFraming(0), CloseFraming(), ChunkedFraming()],
    ids=["length", "close", "chunks"],
)
def test_nothing_is_walked_over_behind_the_end(framing: Framing):
    if isinstance(framing, ChunkedFraming):
        walk(framing, b"0\r\n\r\n")
    framing.end()
    with pytest.raises(LocalProtocolError):
        framing.step(memoryview(b"x"), 0)


class Judge:
    """llhttp on the same chunks."""

    def __init__(self) -> None:
        self.data = b""
        self.is_done = False

    def on_body(self, data: bytes) -> None:
        self.data += data

    def on_message_complete(self) -> None:
        self.is_done = True


FRAGMENTS = st.sampled_from(
    [
        b"0",
        b"1",
        b"3",
        b"a",
        b"F",
        b"\r\n",
        b"\r",
        b"\n",
        b"abc",
        b"x",
        b";",
        b"=",
        b":",
        b" ",
        b"0\r\n",
    ]
)


@settings(derandomize=True, deadline=None, max_examples=500)
@given(st.lists(FRAGMENTS, max_size=12).map(b"".join), st.integers(1, 7))
def test_whatever_we_take_llhttp_takes_the_same(raw: bytes, size: int):
    framing = ChunkedFraming()
    try:
        data, _ = walk(framing, *(raw[i : i + size] for i in range(0, len(raw), size)))
    except EngineUnreachableError:
        return
    judge = Judge()
    parser = HttpResponseParser(judge)
    parser.feed_data(b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n")
    try:
        parser.feed_data(raw)
    except HttpParserError:
        # Names and values of extensions and trailers, which we do not read.
        assert not framing.is_done or b";" in raw or b"0\r\n" in raw
        return
    assert (data, framing.is_done) == (judge.data, judge.is_done)


BODIES = st.lists(st.binary(min_size=1, max_size=40), max_size=6)


@settings(derandomize=True, deadline=None)
@given(BODIES, st.integers(1, 30))
def test_what_is_chunked_well_comes_out_whole(chunks: list[bytes], size: int):
    raw = b"".join(b"%x\r\n%b\r\n" % (len(c), c) for c in chunks) + b"0\r\n\r\n"
    framing = ChunkedFraming()
    pieces = [raw[i : i + size] for i in range(0, len(raw), size)]
    assert walk(framing, *pieces) == (b"".join(chunks), b"")
    assert framing.is_done
