import gzip
import random
from collections.abc import Callable, Iterable

import pytest
import zstandard
from httptools import HttpParserError, HttpResponseParser
from hypothesis import given, settings
from hypothesis import strategies as st

from sessions.engine.engine import Headers
from sessions.engine.reply_reader import Progress, ReplyReader
from sessions.errors.client_visible import UnprocessableError
from sessions.errors.engine import EngineReplyUnusableError, EngineUnreachableError
from sessions.errors.unseen import LocalProtocolError
from tests.support.raw_replies import (
    BODY,
    CLOSE_REPLIES,
    REPLIES,
    KeepingSink,
    close_reply,
    length_reply,
)

ALL = {**REPLIES, **CLOSE_REPLIES}


def play(reader: ReplyReader, pieces: Iterable[bytes], sink: KeepingSink | None = None) -> Progress:
    """Lend pieces from one buffer that is overwritten, as the loop's is; room comes at once."""
    progress = Progress.MORE
    for piece in pieces:
        lent = bytearray(piece)
        progress = reader.receive(memoryview(lent))
        lent[:] = b"\xee" * len(lent)
        while progress is Progress.ROOM and sink is not None:
            sink.make_room()
            progress = reader.go_on()
    return progress


def bytewise(raw: bytes) -> list[bytes]:
    return [bytes([byte]) for byte in raw]


def cuts(raw: bytes) -> list[list[bytes]]:
    """A reply in two pieces, at every boundary, and byte by byte."""
    return [[raw[:cut], raw[cut:]] for cut in range(1, len(raw))] + [[raw], bytewise(raw)]


@pytest.mark.parametrize("name", REPLIES)
def test_a_reply_is_the_same_wherever_its_bytes_are_cut(name: str):
    for pieces in cuts(REPLIES[name]):
        reader = ReplyReader(is_head_request=False)
        assert play(reader, pieces) is Progress.DONE
        reply = reader.reply()
        assert (reply.status, reply.body, reply.is_sunk) == (200, BODY, False)
        assert reader.allows_reuse


@pytest.mark.parametrize("name", CLOSE_REPLIES)
def test_a_reply_without_length_ends_with_its_connection(name: str):
    for pieces in cuts(CLOSE_REPLIES[name]):
        reader = ReplyReader(is_head_request=False)
        assert play(reader, pieces) is Progress.MORE
        assert reader.end() is Progress.DONE
        assert reader.reply().body == BODY
        assert not reader.allows_reuse


@pytest.mark.parametrize("name", ALL)
def test_a_sink_gets_the_same_body_and_is_never_fed_without_room(name: str):
    for pieces in cuts(ALL[name]):
        sink = KeepingSink(has_room=lambda count: count % 3 == 1)
        reader = ReplyReader(is_head_request=False, open_sink=sink.open)
        if play(reader, pieces, sink) is Progress.MORE:
            assert reader.end() is Progress.DONE
        assert bytes(sink.data) == BODY
        assert (reader.reply().body, reader.reply().is_sunk) == (b"", True)


@pytest.mark.parametrize("name", REPLIES)
def test_a_reply_that_is_cut_broke_off_at_every_byte(name: str):
    raw = REPLIES[name]
    for cut in range(len(raw)):
        sink = KeepingSink()
        reader = ReplyReader(is_head_request=False, open_sink=sink.open)
        assert play(reader, filter(None, [raw[:cut]])) is Progress.MORE
        assert reader.has_begun is (cut > 0)
        with pytest.raises(EngineUnreachableError, match="broke off"):
            reader.end()
        assert BODY.startswith(sink.data)
        with pytest.raises(LocalProtocolError):
            reader.reply()


@pytest.mark.parametrize("name", ["close, gzip", "close, zstd"])
def test_a_coded_body_that_ends_with_its_connection_too_early_is_refused(name: str):
    raw = CLOSE_REPLIES[name]
    for cut in range(raw.index(b"\r\n\r\n") + 5, len(raw)):
        reader = ReplyReader(is_head_request=False)
        play(reader, [raw[:cut]])
        with pytest.raises(EngineReplyUnusableError, match="too early"):
            reader.end()


def test_what_follows_a_whole_reply_spoils_its_connection():
    raw = length_reply(b"ok")
    for pieces in ([raw + b"x"], [raw, b"x"], [*bytewise(raw), b"x"]):
        reader = ReplyReader(is_head_request=False)
        assert play(reader, pieces) is Progress.DONE
        assert reader.reply().body == b"ok"
        assert not reader.allows_reuse
    reader = ReplyReader(is_head_request=False)
    play(reader, [raw])
    assert reader.end() is Progress.DONE
    assert not reader.allows_reuse


@pytest.mark.parametrize("header", [b"connection: close", b"a: b"])
def test_a_connection_is_used_again_unless_the_reply_says_close(header: bytes):
    reader = ReplyReader(is_head_request=False)
    play(reader, [length_reply(b"ok", header)])
    assert reader.allows_reuse is (header == b"a: b")


@pytest.mark.parametrize(
    ("raw", "is_head_request"),
    [
        (length_reply(b""), False),
        (b"HTTP/1.1 204 x\r\ncontent-encoding: br\r\n\r\n", False),
        (b"HTTP/1.1 304 x\r\ncontent-length: 9\r\n\r\n", False),
        (b"HTTP/1.1 200 x\r\ncontent-length: 9\r\ncontent-encoding: gzip\r\n\r\n", True),
        (b"HTTP/1.1 200 x\r\ntransfer-encoding: chunked\r\n\r\n", True),
    ],
)
def test_a_reply_without_a_body_is_whole_with_its_head(raw: bytes, *, is_head_request: bool):
    sink = KeepingSink()
    reader = ReplyReader(is_head_request=is_head_request, open_sink=sink.open)
    assert play(reader, [raw]) is Progress.DONE
    assert (reader.reply().body, reader.reply().is_sunk) == (b"", True)
    assert not sink.piece_count
    assert reader.allows_reuse


def test_the_opener_gets_status_and_headers_once_and_may_decline():
    seen = []

    def open_sink(status: int, headers: Headers) -> None:
        seen.append((status, list(headers)))

    raw = b"HTTP/1.1 103 x\r\nl: k\r\n\r\n" + length_reply(b"no", b"X-A: 1", status=b"429 Slow")
    reader = ReplyReader(is_head_request=False, open_sink=open_sink)
    play(reader, bytewise(raw))
    assert seen == [(429, [(b"x-a", b"1"), (b"content-length", b"2")])]
    assert (reader.reply().body, reader.reply().is_sunk) == (b"no", False)


def test_an_unknown_coding_is_refused_before_a_sink_is_opened():
    sink = KeepingSink(error=AssertionError("opened"))
    reader = ReplyReader(is_head_request=False, open_sink=sink.open)
    with pytest.raises(EngineReplyUnusableError, match="'br'"):
        play(reader, [length_reply(b"x", b"content-encoding: br")])
    assert reader.sink is None


def test_what_the_sink_raises_passes_through():
    sink = KeepingSink(error=UnprocessableError("no"))
    reader = ReplyReader(is_head_request=False, open_sink=sink.open)
    with pytest.raises(UnprocessableError):
        play(reader, [length_reply()])


def test_nobody_waits_for_room_after_the_last_piece():
    sink = KeepingSink(has_room=lambda _: False)
    reader = ReplyReader(is_head_request=False, open_sink=sink.open)
    assert play(reader, [length_reply(b"ok")]) is Progress.DONE


@pytest.mark.parametrize("pack", [gzip.compress, zstandard.compress])
def test_what_a_decoder_holds_outlives_the_lent_bytes(pack: Callable[[bytes], bytes]):
    body = random.Random(1).randbytes(600_000)
    coding = b"gzip" if pack is gzip.compress else b"zstd"
    sink = KeepingSink(has_room=lambda _: False)
    reader = ReplyReader(is_head_request=False, open_sink=sink.open)
    raw = length_reply(pack(body), b"content-encoding: " + coding)
    assert play(reader, [raw], sink) is Progress.DONE
    assert bytes(sink.data) == body


def test_bytes_and_the_end_that_come_without_room_are_kept():
    sink = KeepingSink(has_room=lambda _: False)
    reader = ReplyReader(is_head_request=False, open_sink=sink.open)
    assert play(reader, [close_reply(b"a")]) is Progress.ROOM
    assert play(reader, [b"b"]) is Progress.ROOM
    assert reader.end() is Progress.ROOM
    sink.make_room()
    assert reader.go_on() is Progress.ROOM
    sink.make_room()
    assert reader.go_on() is Progress.DONE
    assert bytes(sink.data) == b"ab"
    with pytest.raises(LocalProtocolError):
        reader.go_on()


class Judge:
    """llhttp on the whole reply."""

    def __init__(self, raw: bytes) -> None:
        self.headers: list[tuple[bytes, bytes]] = []
        self.body = b""
        self.is_done = False
        parser = HttpResponseParser(self)
        parser.feed_data(raw)
        self.status = parser.get_status_code()

    def on_message_begin(self) -> None:
        self.headers = []
        self.is_done = False

    def on_header(self, name: bytes, value: bytes) -> None:
        if not self.body:  # not a trailer
            self.headers.append((name.lower(), value.strip()))

    def on_body(self, data: bytes) -> None:
        self.body += data

    def on_message_complete(self) -> None:
        self.is_done = True


@st.composite
def raw_replies(draw: st.DrawFn) -> bytes:
    """Replies in every framing; some have a byte changed, some are cut."""
    body = draw(st.binary(min_size=1, max_size=60))
    size = draw(st.integers(1, 60))
    chunks = b"".join(
        b"%x\r\n%b\r\n" % (len(part), part)
        for part in (body[i : i + size] for i in range(0, len(body), size))
    )
    framing = draw(
        st.sampled_from(
            [
                b"content-length: %d\r\n\r\n%b" % (len(body), body),
                b"Transfer-Encoding: chunked\r\n\r\n%b0\r\n\r\n" % chunks,
                b"\r\n" + body,
            ]
        )
    )
    header = draw(st.sampled_from([b"", b"X-A: 1 \r\n", b"connection: close\r\n"]))
    status = draw(st.sampled_from([b"200 OK", b"404 Not Found", b"500"]))
    raw = b"HTTP/1.1 " + status + b"\r\n" + header + framing
    if draw(st.booleans()):
        index = draw(st.integers(0, len(raw) - 1))
        raw = raw[:index] + draw(st.binary(max_size=2)) + raw[index + 1 :]
    return raw[: draw(st.integers(1, len(raw)))] if draw(st.booleans()) else raw


@settings(derandomize=True, deadline=None, max_examples=1000)
@given(raw_replies(), st.integers(1, 50))
def test_whatever_we_take_llhttp_takes_the_same(raw: bytes, size: int):
    reader = ReplyReader(is_head_request=False)
    try:
        progress = play(reader, [raw[i : i + size] for i in range(0, len(raw), size)])
        is_cut_by_end = progress is Progress.MORE
        if is_cut_by_end:
            reader.end()
    except (EngineUnreachableError, EngineReplyUnusableError):
        return
    reply = reader.reply()
    try:
        judge = Judge(raw)
    except HttpParserError:
        assert not is_cut_by_end  # llhttp stumbled over what follows the reply
        return
    if judge.is_done or is_cut_by_end:
        assert (reply.status, reply.headers, reply.body) == (
            judge.status,
            judge.headers,
            judge.body,
        )
