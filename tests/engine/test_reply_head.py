from collections.abc import Iterable

import pytest

from sessions.engine.framing import BodyEnd
from sessions.engine.reply_head import HEAD_LIMIT_BYTES, ReplyHead, ReplyHeadReader
from sessions.errors.engine import EngineUnreachableError
from sessions.errors.unseen import LocalProtocolError

OK = b"HTTP/1.1 200 OK\r\n"


def read(pieces: Iterable[bytes], *, is_head_request: bool = False) -> tuple[ReplyHead, int]:
    """The head, and how many bytes of the last piece are not of it."""
    reader = ReplyHeadReader(is_head_request=is_head_request)
    for piece in pieces:
        found = reader.feed(memoryview(piece))
        if found is not None:
            return found[0], len(piece) - found[1]
    raise AssertionError("the head did not end")


def one(raw: bytes, *, is_head_request: bool = False) -> ReplyHead:
    return read([raw], is_head_request=is_head_request)[0]


@pytest.mark.parametrize(
    ("headers", "body_end", "length", "keep_alive"),
    [
        (b"content-length: 12\r\n", BodyEnd.LENGTH, 12, True),
        (b"content-length: 0\r\n", BodyEnd.LENGTH, 0, True),
        (b"content-length: 012 \r\n", BodyEnd.LENGTH, 12, True),
        (b"transfer-encoding: Chunked\r\n", BodyEnd.CHUNKED, 0, True),
        (b"", BodyEnd.CLOSE, 0, False),
        (b"content-length: 1\r\nconnection: close\r\n", BodyEnd.LENGTH, 1, False),
        (b"content-length: 1\r\nconnection: x, CLOSE\r\n", BodyEnd.LENGTH, 1, False),
        (b"content-length: 1\r\nconnection: x\r\nconnection: close\r\n", BodyEnd.LENGTH, 1, False),
        (b"content-length: 1\r\nconnection: closed\r\n", BodyEnd.LENGTH, 1, True),
    ],
)
def test_the_end_of_the_body_and_of_the_connection_are_read_from_the_headers(
    headers: bytes, body_end: BodyEnd, length: int, *, keep_alive: bool
):
    head = one(OK + headers + b"\r\n")
    assert (head.body_end, head.content_length, head.keep_alive) == (body_end, length, keep_alive)


@pytest.mark.parametrize(
    ("connection", "keep_alive"), [(b"", False), (b"connection: Keep-Alive\r\n", True)]
)
def test_a_connection_of_http_1_0_is_kept_only_if_it_says_so(
    connection: bytes, *, keep_alive: bool
):
    head = one(b"HTTP/1.0 200 OK\r\ncontent-length: 1\r\n" + connection + b"\r\n")
    assert head.keep_alive is keep_alive


@pytest.mark.parametrize("status", [204, 304])
def test_a_status_without_body_has_none_whatever_its_headers_say(status: int):
    head = one(b"HTTP/1.1 %d x\r\ncontent-length: 5\r\n\r\n" % status)
    assert (head.body_end, head.content_length, head.keep_alive) == (BodyEnd.NONE, 0, True)


def test_the_reply_to_head_has_no_body():
    head = one(OK + b"content-length: 5\r\n\r\n", is_head_request=True)
    assert head.body_end is BodyEnd.NONE
    assert head.headers == [(b"content-length", b"5")]


def test_headers_are_lower_case_in_order_and_trimmed():
    head = one(OK + b"X-A:\t1 \t\r\nset-cookie: a\r\nSet-Cookie: \xff\r\nx-b:\r\n\r\n")
    assert head.headers == [
        (b"x-a", b"1"),
        (b"set-cookie", b"a"),
        (b"set-cookie", b"\xff"),
        (b"x-b", b""),
    ]


def test_interim_heads_are_skipped():
    raw = (
        b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 103 x\r\nlink: y\r\n\r\n" + OK + b"a: b\r\n\r\nrest"
    )
    for cut in range(len(raw) - 4):
        head, left = read([raw[:cut], raw[cut:]])
        assert (head.status, head.headers, left) == (200, [(b"a", b"b")], 4)
    head, left = read(bytes([byte]) for byte in raw)
    assert (head.status, left) == (200, 0)


@pytest.mark.parametrize("status", [200, 299, 404, 599, 999])
def test_every_final_status_is_a_reply(status: int):
    assert one(b"HTTP/1.1 %d\r\n\r\n" % status).status == status


@pytest.mark.parametrize(
    ("raw", "reason"),
    [
        (b"x", "begin"),
        (b"HTTP/2", "begin"),
        (b"\r\nHTTP/1.1 200 OK\r\n\r\n", "begin"),
        (b"\x15\x03\x01", "begin"),
        (b"HTTP/1.1 200 OK\n", "without CR"),
        (b"HTTP/1.1 99 OK\r\n\r\n", "malformed"),
        (b"HTTP/1.1 1000 OK\r\n\r\n", "malformed"),
        (b"HTTP/1.1  200 OK\r\n\r\n", "malformed"),
        (OK + b"a : b\r\n\r\n", "malformed"),
        (OK + b": b\r\n\r\n", "malformed"),
        (OK + b"a: \0\r\n\r\n", "malformed"),
        (OK + b"a: b\r\n c\r\n\r\n", "malformed"),
        (OK + b"content-length: 1, 1\r\n\r\n", "malformed"),
        (OK + b"content-length: 1\r\ncontent-length: 1\r\n\r\n", "malformed"),
        (OK + b"content-length: -1\r\n\r\n", "malformed"),
        (OK + b"content-length: 99999999999999999999\r\n\r\n", "malformed"),
        (OK + b"content-length: " + b"0" * 5000 + b"1\r\n\r\n", "too long"),
        (OK + b"content-length: 1\r\ntransfer-encoding: chunked\r\n\r\n", "malformed"),
        (OK + b"transfer-encoding: gzip, chunked\r\n\r\n", "transfer coding"),
        (OK + b"transfer-encoding: identity\r\n\r\n", "transfer coding"),
        (OK + b"transfer-encoding: chunked\r\ntransfer-encoding: chunked\r\n\r\n", "coding"),
        (b"HTTP/1.1 101 x\r\nupgrade: h2c\r\nconnection: upgrade\r\n\r\n", "protocol"),
    ],
)
def test_what_is_no_http_1_head_is_refused_as_soon_as_it_is_known(raw: bytes, reason: str):
    with pytest.raises(EngineUnreachableError, match=reason):
        ReplyHeadReader(is_head_request=False).feed(memoryview(raw))
    with pytest.raises(EngineUnreachableError):
        read(bytes([byte]) for byte in raw)


@pytest.mark.parametrize("is_cut", [False, True])
def test_a_head_may_be_as_large_as_the_limit(*, is_cut: bool):
    room = HEAD_LIMIT_BYTES - len(OK + b"a: \r\n\r\n")
    raw = OK + b"a: " + b"x" * room + b"\r\n\r\n"
    assert len(raw) == HEAD_LIMIT_BYTES
    interim = b"HTTP/1.1 100 x\r\n\r\n"  # the limit is of one head
    assert one(interim + raw).headers == [(b"a", b"x" * room)]
    larger = raw.replace(b"a: ", b"a: y")
    pieces = [larger[:-2], larger[-2:]] if is_cut else [larger]
    with pytest.raises(EngineUnreachableError, match="65536 bytes"):
        read(pieces)


def test_a_head_without_end_is_refused_at_the_limit():
    reader = ReplyHeadReader(is_head_request=False)
    assert reader.feed(memoryview(OK + b"a: ")) is None
    with pytest.raises(EngineUnreachableError, match="65536 bytes"):
        reader.feed(memoryview(b"x" * HEAD_LIMIT_BYTES))


def test_nothing_is_read_behind_the_final_head():
    reader = ReplyHeadReader(is_head_request=False)
    reader.feed(memoryview(OK + b"\r\n"))
    with pytest.raises(LocalProtocolError):
        reader.feed(memoryview(OK))
