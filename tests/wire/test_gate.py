"""The head gate: what it takes, what it refuses, and that llhttp sees the same request."""

from __future__ import annotations

import itertools

import httptools
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sessions.errors.protocol import (
    BadHeadError,
    HeadTooLargeError,
    MethodNotAllowedError,
    UpgradeRefusedError,
)
from sessions.wire import gate
from sessions.wire.gate import neutral_head, neutralise_upgrade, read_head, strip_leading_crlf
from sessions.wire.head import Framing, Head
from tests.support.request_heads import BY_HAND, BY_LLHTTP, CONNECTION, StockReader, raw_of

LIMIT = 65536
law = settings(derandomize=True, deadline=None)


def head_of(raw: bytes, limit: int = LIMIT) -> Head:
    head = read_head(raw, 0, limit)
    assert head is not None
    return head


def test_reads_every_field_of_a_head():
    raw = raw_of(
        b"Content-Type:  text/plain",
        b"X-Two: 1",
        b"x-two: 2 \t",
        b"Expect: 100-Continue",
        b"Content-Length: 0012",
        b"X-Empty:",
        first=b"POST /a%20b?c=d?e HTTP/1.1",
    )
    head = head_of(raw + b"body bytes and \r\n\r\n more")
    assert head == Head(
        method=b"POST",
        target=b"/a%20b?c=d?e",
        path=b"/a%20b",
        http_version="1.1",
        headers=[
            (b"host", b"a"),
            (b"content-type", b"text/plain"),
            (b"x-two", b"1"),
            (b"x-two", b"2 \t"),
            (b"expect", b"100-Continue"),
            (b"content-length", b"0012"),
            (b"x-empty", b""),
        ],
        size=len(raw),
        framing=Framing.LENGTH,
        content_length=12,
        keep_alive=True,
        expects_continue=True,
        upgrades=False,
    )


def test_wants_more_until_the_last_byte_whatever_was_seen_before():
    raw = raw_of(b"A: b", b"Content-Length: 3")
    for cut in range(len(raw)):
        assert read_head(raw[:cut], 0, LIMIT) is None
        for seen in range(cut + 1):
            assert read_head(raw[:cut], seen, LIMIT) is None
            head = read_head(raw, seen, LIMIT)
            assert head is not None
            assert head.size == len(raw)


@pytest.mark.parametrize(
    "method", [b"GET", b"HEAD", b"POST", b"PUT", b"PATCH", b"DELETE", b"OPTIONS"]
)
def test_takes_the_methods_that_a_uvicorn_takes(method: bytes):
    assert head_of(raw_of(first=method + b" / HTTP/1.1")).method == method


@pytest.mark.parametrize(
    ("lines", "framing", "length"),
    [
        ([], Framing.NONE, 0),
        ([b"Content-Length: 0"], Framing.LENGTH, 0),
        ([b"content-LENGTH:\t7 \t"], Framing.LENGTH, 7),
        ([b"Content-Length: 18446744073709551615"], Framing.LENGTH, 2**64 - 1),
        ([b"Content-Length: " + b"0" * 63 + b"7"], Framing.LENGTH, 7),
        ([b"Transfer-Encoding: chunked"], Framing.CHUNKED, 0),
        ([b"TRANSFER-encoding:   Chunked  "], Framing.CHUNKED, 0),
    ],
)
def test_knows_how_the_body_ends(lines: list[bytes], framing: Framing, length: int):
    head = head_of(raw_of(*lines, first=b"POST / HTTP/1.1"))
    assert (head.framing, head.content_length) == (framing, length)


@pytest.mark.parametrize("raw", BY_LLHTTP)
def test_refuses_a_malformed_head_that_llhttp_refuses(raw: bytes):
    with pytest.raises(BadHeadError) as caught:
        read_head(raw, 0, LIMIT)
    assert caught.value.status == 400


@pytest.mark.parametrize(("raw", "word"), BY_HAND)
def test_refuses_a_malformed_head_that_llhttp_lets_through(raw: bytes, word: str):
    with pytest.raises(BadHeadError, match=word):
        read_head(raw, 0, LIMIT)


@pytest.mark.parametrize("raw", [raw for raw, _ in BY_HAND if b"\r\n\r\n" in raw])
def test_llhttp_alone_would_let_those_through(raw: bytes):
    assert StockReader(raw).sizes == [len(raw)]


def test_refuses_a_first_blank_line_that_is_not_the_head_end():
    with pytest.raises(BadHeadError, match="request line"):
        read_head(b"\r\n\r\n" + raw_of(), 0, LIMIT)


@pytest.mark.parametrize("more", [b"\r\n", b"\r\n\r\n", b"x", raw_of()])
def test_has_llhttp_judge_exactly_one_head(more: bytes):
    with pytest.raises(BadHeadError):
        gate._judge(raw_of() + more)
    with pytest.raises(BadHeadError, match="first blank line"):
        gate._judge(raw_of()[:-1])


@pytest.mark.parametrize(
    "value", [b"", b"h:80", b"[::1]:8000", b"a_b.c-d", b"127.0.0.1 \t", b"h%20:1"]
)
def test_takes_a_host_that_is_one(value: bytes):
    assert head_of(raw_of(b"Host: " + value, host=False)).values(b"host") == [value]


def test_takes_http_1_0_without_host():
    head = head_of(raw_of(first=b"GET / HTTP/1.0", host=False))
    assert head.http_version == "1.0"


@pytest.mark.parametrize(
    ("target", "path"),
    [
        (b"/", b"/"),
        (b"/?", b"/"),
        (b"/a?b=/c?d", b"/a"),
        (b"//a/b", b"//a/b"),
        (b"/http://h/x", b"/http://h/x"),
        (b'/a"<>{}|\\^`[]', b'/a"<>{}|\\^`[]'),
        (b"http://h/p", b"/p"),
        (b"HTTP://h:1/p/q?r=/s", b"/p/q"),
        (b"https://[::1]:80/", b"/"),
        (b"http://u:p@h/p", b"/p"),
    ],
)
def test_gives_the_path_that_a_uvicorn_gives(target: bytes, path: bytes):
    head = head_of(raw_of(first=b"GET " + target + b" HTTP/1.1"))
    assert (head.target, head.path) == (target, path)
    assert httptools.parse_url(target).path == path


@law
@given(st.binary(max_size=20).map(lambda tail: b"/" + tail))
def test_every_target_it_takes_has_the_path_that_a_uvicorn_gives(target: bytes):
    try:
        head = read_head(raw_of(first=b"GET " + target + b" HTTP/1.1"), 0, LIMIT)
    except BadHeadError:
        return
    if head is not None:
        assert httptools.parse_url(target).path == head.path
        head.path.decode("ascii")


@pytest.mark.parametrize("version", [b"1.1", b"1.0"])
@pytest.mark.parametrize("lines", CONNECTION)
@pytest.mark.parametrize("body", [[], [b"Content-Length: 3"]])
def test_keeps_the_connection_when_a_uvicorn_would(
    version: bytes, lines: list[bytes], body: list[bytes]
):
    raw = raw_of(*body, *lines, first=b"POST / HTTP/" + version)
    assert head_of(raw).keep_alive is StockReader(raw).keep_alive


def test_closes_by_version_and_by_header():
    assert head_of(raw_of()).keep_alive
    assert not head_of(raw_of(b"Connection: close")).keep_alive
    assert not head_of(raw_of(b"Connection: keep-alive", first=b"GET / HTTP/1.0")).keep_alive


def test_expects_continue_only_as_a_uvicorn_does():
    assert head_of(raw_of(b"Expect: 100-continue")).expects_continue
    assert not head_of(raw_of(b"Expect: 100-continue, x")).expects_continue
    assert not head_of(raw_of()).expects_continue


@pytest.mark.parametrize("target", [b"a:80", b"/", b"[::1]:443"])
def test_refuses_connect(target: bytes):
    with pytest.raises(MethodNotAllowedError):
        read_head(raw_of(first=b"CONNECT " + target + b" HTTP/1.1"), 0, LIMIT)


@pytest.mark.parametrize(
    "lines",
    [
        [b"Connection: Upgrade", b"Upgrade: websocket"],
        [b"upgrade: WebSocket", b"connection: keep-alive, upgrade"],
        [b"Connection: Upgrade", b"Upgrade: h2c, websocket"],
        [b"Connection: Upgrade", b"Upgrade: websocket", b"Upgrade: h2c"],
    ],
)
def test_refuses_websocket(lines: list[bytes]):
    with pytest.raises(UpgradeRefusedError):
        read_head(raw_of(*lines), 0, LIMIT)


@pytest.mark.parametrize(
    ("first", "lines"),
    [
        (b"GET / HTTP/1.1", [b"Upgrade: websocket"]),
        (b"GET / HTTP/1.1", [b"Upgrade: websocket", b"Connection: keep-alive"]),
        (b"GET / HTTP/1.0", [b"Upgrade: websocket", b"Connection: Upgrade"]),
        (b"GET / HTTP/1.1", [b"X: websocket", b"Upgrade: h2c", b"Connection: Upgrade"]),
    ],
)
def test_serves_an_upgrade_that_asks_for_nothing(first: bytes, lines: list[bytes]):
    assert head_of(raw_of(*lines, first=first)).upgrades


H2C = [b"Connection: Upgrade, HTTP2-Settings", b"HTTP2-Settings: AAMAAABkAAQAAP__"]


@pytest.mark.parametrize(
    "name", [b"Upgrade", b"upgrade", b"UPGRADE", b"uPgRaDe"], ids=lambda name: name.decode()
)
def test_renames_upgrade_in_every_spelling_and_keeps_all_other_bytes(name: bytes):
    body = b"\r\nUpgrade: body\r\n\r\n"
    raw = raw_of(
        name + b": h2c",
        b"X-Upgrade: h2c",
        b"Upgrade-Insecure-Requests: 1",
        b"A: upgrade: h2c",
        b"UPGRADE:other",
        *H2C,
        b"Content-Length: 19",
        first=b"POST /upgrade: HTTP/1.1".replace(b":", b""),
    )
    head = head_of(raw)
    assert head.upgrades
    renamed = neutralise_upgrade(raw + body, head)
    assert (
        renamed
        == raw.replace(name + b": h2c", b"x-noupg: h2c", 1).replace(
            b"UPGRADE:other", b"x-noupg:other"
        )
        + body
    )
    assert len(renamed) == len(raw + body)


@pytest.mark.parametrize("chunked", [False, True])
def test_gives_llhttp_the_whole_body_after_an_h2c_upgrade(chunked: bool):  # noqa: FBT001
    body = b"5\r\nhello\r\n0\r\n\r\n" if chunked else b"hello"
    framing = b"Transfer-Encoding: chunked" if chunked else b"Content-Length: 5"
    raw = raw_of(b"Upgrade: h2c", b"upgrade: x", *H2C, framing, first=b"POST / HTTP/1.1")
    with pytest.raises(httptools.HttpParserUpgrade):
        StockReader(raw + body)
    seen = StockReader(neutralise_upgrade(raw + body, head_of(raw)) + raw_of())
    assert seen.body == b"hello"
    assert seen.completed == 2


def test_copies_nothing_when_there_is_no_upgrade():
    raw = raw_of(b"X-Upgrade: h2c", b"Connection: Upgrade")
    head = head_of(raw)
    assert not head.upgrades
    buffer = raw + b"body"
    assert neutralise_upgrade(buffer, head) is buffer


def test_takes_a_head_at_the_limit_and_refuses_one_byte_more():
    raw = raw_of(b"A: " + b"b" * 100)
    assert head_of(raw + b"body", limit=len(raw)).size == len(raw)
    for buffer in (raw, raw + b"body"):
        with pytest.raises(HeadTooLargeError, match=f"{len(raw) - 1} bytes"):
            read_head(buffer, 0, len(raw) - 1)


def test_refuses_an_unfinished_head_as_soon_as_it_must_be_over_the_limit():
    raw = raw_of(b"A: " + b"b" * 100)
    assert read_head(raw[:49], 0, 50) is None
    with pytest.raises(HeadTooLargeError):
        read_head(raw[:50], 49, 50)


@pytest.mark.parametrize(
    ("buffer", "seen"),
    [
        (b"\x16\x03\x01\x02\x00\x01", 0),
        (b"hello", 0),
        (b" GET", 0),
        (b"\r\r", 0),
        (b"\n", 0),
        (b"\0", 0),
        (b"GET / HTTP/1.1\n", 0),
        (b"GET / HTTP/1.1\n", 14),
        (b"GET / HTTP/1.1\r\nHost: a\n\n", 0),
        (b"GET / HTTP/1.1\r\nHost: a\n\n", 16),
    ],
)
def test_refuses_an_unfinished_head_that_cannot_become_one(buffer: bytes, seen: int):
    with pytest.raises(BadHeadError):
        read_head(buffer, seen, LIMIT)


@pytest.mark.parametrize("buffer", [b"", b"\r", b"G", b"GET / HTTP/1.1\r", b"GET / HTTP/1.1\r\n"])
def test_waits_for_more_of_an_unfinished_head_that_may_become_one(buffer: bytes):
    for seen in range(len(buffer) + 1):
        assert read_head(buffer, seen, LIMIT) is None


@pytest.mark.parametrize(
    ("buffer", "rest"),
    [
        (b"", b""),
        (b"\r\n", b""),
        (b"\r\n\r\n\r\nGET", b"GET"),
        (b"\r", b"\r"),
        (b"\r\n\r", b"\r"),
        (b"\nGET", b"\nGET"),
        (b"\r\n\nGET", b"\nGET"),
        (b"\r\rGET", b"\r\rGET"),
        (b"GET\r\n", b"GET\r\n"),
    ],
)
def test_strips_empty_lines_only(buffer: bytes, rest: bytes):
    assert strip_leading_crlf(buffer) == rest
    assert (strip_leading_crlf(buffer) is buffer) is (buffer == rest)


NAMES = st.sampled_from(
    [b"A", b"x-b", b"Content-Length", b"Transfer-Encoding", b"Upgrade", b"Connection", b"Expect"]
)
VALUES = st.sampled_from(
    [b"", b"1", b" 2 ", b"chunked", b"close", b"upgrade", b"h2c", b"\tx\xff", b"100-continue"]
)
LINES = st.lists(st.tuples(NAMES, VALUES).map(b":".join), max_size=4)
DAMAGE = st.sampled_from(
    [b"", b"\r", b"\n", b"\r\n", b"\r\n\r\n", b"\n\n", b" ", b"\t", b"\0", b":", b"/", b"GET "]
)


@settings(derandomize=True, deadline=None, max_examples=1000)
@given(
    LINES,
    st.lists(st.tuples(st.integers(0, 120), DAMAGE, st.booleans()), max_size=2),
    st.sampled_from([b"GET / HTTP/1.1", b"POST /a?b HTTP/1.0", b"PUT http://h/x HTTP/1.1"]),
)
def test_a_head_it_takes_is_the_head_that_llhttp_and_a_uvicorn_see(
    lines: list[bytes], damages: list[tuple[int, bytes, bool]], first: bytes
):
    raw = raw_of(*lines, first=first)
    for at, damage, replace in damages:
        raw = raw[:at] + damage + raw[at + replace :]
    try:
        head = read_head(raw, 0, LIMIT)
    except (BadHeadError, MethodNotAllowedError, UpgradeRefusedError):
        return
    if head is None:
        return
    neutral = neutralise_upgrade(raw[: head.size], head)
    assert read_head(neutral, 0, LIMIT) == neutral_head(head)
    seen = StockReader(neutral)
    assert seen.sizes == [head.size]
    assert seen.keep_alive is head.keep_alive
    assert seen.url == head.target
    assert seen.parser.get_method() == head.method
    assert seen.parser.get_http_version() == head.http_version
    assert [value for _, value in seen.headers] == [value for _, value in head.headers]
    renamed = [b"x-noupg" if name == b"upgrade" else name for name, _ in head.headers]
    assert [name for name, _ in seen.headers] == renamed
    assert seen.completed == (not head.has_body)


@law
@given(st.lists(LINES, min_size=2, max_size=3))
def test_finds_one_head_after_the_other_in_one_buffer(requests: list[list[bytes]]):
    plain = [[line for line in lines if line[:2] in {b"A:", b"x-"}] for lines in requests]
    heads = [raw_of(*lines) for lines in plain]
    buffer = b"".join(itertools.chain.from_iterable((b"\r\n", raw) for raw in heads))
    for raw in heads:
        buffer = strip_leading_crlf(buffer)
        assert head_of(buffer).size == len(raw)
        buffer = buffer[len(raw) :]
    assert buffer == b""
