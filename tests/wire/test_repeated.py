"""Repeated heads: the verdict is the gate's, whatever came before."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sessions.errors.client_visible import RequestError
from sessions.wire import repeated
from sessions.wire.gate import read_head
from sessions.wire.head import Head
from sessions.wire.repeated import KEPT_BYTES, KEPT_COUNT, KEPT_LINES, RepeatedHeads
from tests.support.request_heads import BY_HAND, BY_LLHTTP, CONNECTION, raw_of

LIMIT = 65536
Verdict = Head | tuple[type, str] | None

FIRSTS = [
    b"GET / HTTP/1.1",
    b"POST /sessions/a-1/v1/chat/completions HTTP/1.1",
    b"DELETE /a?b=c?d HTTP/1.1",
    b"HEAD //a/%2F?%zz HTTP/1.1",
    b'OPTIONS /a|"<>{}^`\\ HTTP/1.1',
    b"CONNECT a:1 HTTP/1.1",
    b"CONNECT /a HTTP/1.1",
    b"PURGE /a HTTP/1.1",
    b"GET /a#b HTTP/1.1",
    b"GET /a?b#c HTTP/1.1",
    b"GET /\xff HTTP/1.1",
    b"GET /a b HTTP/1.1",
    b"GET  /a HTTP/1.1",
    b"GET /a HTTP/1.0",
    b"GET /a HTTP/1.1 ",
    b"GET http://h/p HTTP/1.1",
    b"GET * HTTP/1.1",
]
LINES = [
    b"A: b",
    b"a:b",
    b"A : b",
    b"A: b\nC: d",
    b" folded",
    b"Host: b",
    b"Content-Length:",
    b"Content-Length: ",
    b"Content-Length: 0",
    b"content-length: 7",
    b"CONTENT-LENGTH: 7",
    b"Content-Length:  7",
    b"Content-Length: 7 ",
    b"Content-Length: 07",
    b"Content-Length: +7",
    b"Content-Length: 12345678901234567",
    b"Content-Length: 123456789012345678901",
    b"Transfer-Encoding: chunked",
    b"Transfer-Encoding: gzip",
    b"Expect: 100-continue",
    b"Upgrade: h2c",
    b"Upgrade: websocket",
    b"Connection: upgrade",
    *(line for lines in CONNECTION for line in lines),
]
HEADS = st.builds(
    lambda first, lines, host: raw_of(*lines, first=first, host=host),
    st.sampled_from(FIRSTS),
    st.lists(st.sampled_from(LINES), max_size=3),
    st.booleans(),
)
LENGTHS = st.one_of(
    st.integers(0, 10**20).map(lambda number: b"%d" % number),
    st.sampled_from([b"", b" ", b"00", b"1 ", b"1,1", b"0x1", b"-1"]),
)


def verdict_of(reader: RepeatedHeads, raw: bytes, start: int = 0, limit: int = LIMIT) -> Verdict:
    try:
        return reader.read(raw, start, limit)
    except RequestError as error:
        return type(error), str(error)


def verdict_of_gate(raw: bytes, start: int = 0, limit: int = LIMIT) -> Verdict:
    try:
        return read_head(raw, start, limit)
    except RequestError as error:
        return type(error), str(error)


@given(st.lists(HEADS, min_size=2, max_size=6))
@settings(derandomize=True, deadline=None, max_examples=500)
def test_says_what_the_gate_says_whatever_it_read_before(heads: list[bytes]):
    reader = RepeatedHeads()
    for raw in [*heads, *heads]:
        assert verdict_of(reader, raw + b"tail") == verdict_of_gate(raw + b"tail")


@given(st.sampled_from(FIRSTS), st.lists(LENGTHS, min_size=2, max_size=6))
@settings(derandomize=True, deadline=None)
def test_says_what_the_gate_says_when_only_the_length_differs(first: bytes, lengths: list[bytes]):
    reader = RepeatedHeads()
    for length in [*lengths, *lengths]:
        raw = raw_of(b"Content-Length: " + length, b"A: b", first=first)
        assert verdict_of(reader, raw) == verdict_of_gate(raw)


@pytest.mark.parametrize("before", [raw_of(), raw_of(b"A: b"), raw_of(b"Content-Length: 3")])
def test_refuses_what_the_gate_refuses(before: bytes):
    reader = RepeatedHeads()
    for raw in [*BY_LLHTTP, *(raw for raw, _ in BY_HAND)]:
        reader.read(before, 0, LIMIT)
        assert [verdict_of(reader, raw) for _ in range(2)] == [verdict_of_gate(raw)] * 2


def test_wants_more_until_the_last_byte_whatever_was_seen_before():
    reader = RepeatedHeads()
    raw = raw_of(b"Content-Length: 12", b"A: b")
    expected = reader.read(raw, 0, LIMIT)
    for end in range(1, len(raw)):
        assert reader.read(raw[:end], 0, LIMIT) is None
        assert reader.read(raw, end, LIMIT) == expected


def test_the_limit_holds_for_lines_that_are_known():
    reader = RepeatedHeads()
    raw = raw_of(b"A: b")
    reader.read(raw, 0, LIMIT)
    assert verdict_of(reader, raw, 0, len(raw)) == verdict_of_gate(raw)
    over = verdict_of(reader, raw, 0, len(raw) - 1)
    assert over == verdict_of_gate(raw, 0, len(raw) - 1)
    assert isinstance(over, tuple)


def test_lines_that_are_known_are_read_by_no_parser(monkeypatch: pytest.MonkeyPatch):
    reader = RepeatedHeads()
    reader.read(raw_of(b"Content-Length: 3", first=b"GET /a HTTP/1.1"), 0, LIMIT)
    monkeypatch.delattr(repeated, "read_head")
    head = reader.read(raw_of(b"Content-Length: 45", first=b"POST /b?c HTTP/1.1"), 0, LIMIT)
    assert head is not None
    assert (head.method, head.target, head.path) == (b"POST", b"/b?c", b"/b")
    assert head.headers == [(b"host", b"a"), (b"content-length", b"45")]
    assert head.content_length == 45


def test_each_head_has_headers_of_its_own():
    reader = RepeatedHeads()
    for _ in range(3):
        head = reader.read(raw_of(), 0, LIMIT)
        assert head is not None
        assert head.headers == [(b"host", b"a")]
        head.headers.append((b"x", b"y"))


@pytest.mark.parametrize("is_kept", [True, False])
def test_what_is_kept_of_one_head_has_a_limit(is_kept: bool):  # noqa: FBT001
    reader = RepeatedHeads()
    fill = KEPT_BYTES - len(b"\r\nHost: a\r\nA: \r\n") + (not is_kept)
    reader.read(raw_of(b"A: " + b"b" * fill), 0, LIMIT)
    assert len(reader._kept) == is_kept


def test_the_oldest_lines_are_forgotten_when_there_are_too_many():
    reader = RepeatedHeads()
    for number in range(KEPT_COUNT + 1):
        reader.read(raw_of(b"A: %d" % number), 0, LIMIT)
    assert len(reader._kept) == KEPT_COUNT
    assert b"\r\nHost: a\r\nA: 0\r\n" not in reader._kept
    assert b"\r\nHost: a\r\nA: %d\r\n" % KEPT_COUNT in reader._kept


@pytest.mark.parametrize("is_kept", [True, False])
def test_a_head_of_many_lines_is_not_kept(*, is_kept: bool):
    reader = RepeatedHeads()
    lines = b"A:\r\n" * (KEPT_LINES - is_kept)
    head = reader.read(b"GET / HTTP/1.1\r\nHost: a\r\n" + lines + b"\r\n", 0, LIMIT)
    assert head is not None
    assert bool(reader._kept) is is_kept
