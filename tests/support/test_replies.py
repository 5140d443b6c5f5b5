"""The strict reply parser: whole, byte by byte, with trailing bytes, and what it refuses."""

from __future__ import annotations

import itertools

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.support.replies import (
    ConnectionEndedError,
    Reply,
    ReplyCutError,
    ReplyError,
    ReplyParser,
)

OK = b"HTTP/1.1 200 OK\r\n"
LENGTH = OK + b"Date: now\r\nX-A: 1\r\nx-a: 2\r\nContent-Length: 5\r\n\r\nhello"
CHUNKED = OK + b"Transfer-Encoding: chunked\r\n\r\n3;x=y\r\nhel\r\n2\r\nlo\r\n0\r\n\r\n"
NO_CONTENT = b"HTTP/1.1 204 No Content\r\nx: y\r\n\r\n"
INTERIM = b"HTTP/1.1 100 Continue\r\n\r\n" + LENGTH
CORPUS = {"length": LENGTH, "chunked": CHUNKED, "none": NO_CONTENT, "interim": INTERIM}


def parse(data: bytes, piece_bytes: int = 0, *, head_only: bool = False) -> tuple[Reply, bytes]:
    """The one reply in the data, and what is left over."""
    parser = ReplyParser()
    step = piece_bytes or len(data)
    found = None
    for at in range(0, len(data), step):
        parser.feed(data[at : at + step])
        found = found or parser.next_reply(head_only=head_only)
    assert found is not None
    return found, parser.leftover


@pytest.mark.parametrize("data", CORPUS.values(), ids=CORPUS)
def test_a_reply_is_the_same_whole_byte_by_byte_and_before_other_bytes(data: bytes):
    whole = parse(data)
    assert whole == parse(data, 1)
    assert parse(data + b"HTTP/1.1 2") == (whole[0], b"HTTP/1.1 2")
    assert whole[1] == b""


def test_header_names_and_order_and_head_bytes_are_kept():
    reply, _ = parse(LENGTH)
    assert reply.headers == [("Date", "now"), ("X-A", "1"), ("x-a", "2"), ("Content-Length", "5")]
    assert reply.head + reply.body == LENGTH
    assert (reply.status, reply.reason, reply.version) == (200, "OK", "1.1")
    assert reply.values("X-a") == ["1", "2"]
    with pytest.raises(ReplyError, match="came 2 times"):
        reply.header("x-a")


def test_comparable_hides_the_date_only():
    reply, _ = parse(LENGTH)
    other, _ = parse(LENGTH.replace(b"now", b"later"))
    assert reply.comparable() == other.comparable()
    assert reply.comparable() != parse(LENGTH.replace(b"X-A: 1", b"X-A: 3"))[0].comparable()
    assert reply.comparable() != parse(LENGTH.replace(b"X-A: 1", b"X-a: 1"))[0].comparable()


def test_interim_replies_are_kept_apart():
    reply, _ = parse(INTERIM)
    assert reply.interim == [b"HTTP/1.1 100 Continue\r\n\r\n"]
    assert reply.body == b"hello"


def test_chunks_are_joined():
    reply, _ = parse(CHUNKED)
    assert (reply.body, reply.body_bytes, reply.framing) == (b"hello", 5, "chunked")


def test_a_reply_to_head_has_no_body():
    reply, left = parse(LENGTH.removesuffix(b"hello") + NO_CONTENT, head_only=True)
    assert (reply.body, reply.header("content-length"), left) == (b"", "5", NO_CONTENT)


def test_a_body_without_framing_ends_with_the_connection():
    parser = ReplyParser()
    parser.feed(OK + b"\r\nhel")
    assert parser.next_reply() is None
    parser.feed(b"lo")
    assert parser.next_reply() is None
    parser.feed(b"")
    reply = parser.next_reply()
    assert reply is not None
    assert (reply.body, reply.framing) == (b"hello", "eof")


def test_a_body_that_is_not_kept_is_counted():
    parser = ReplyParser()
    parser.feed(LENGTH)
    reply = parser.next_reply(keep_body=False)
    assert reply is not None
    assert (reply.body, reply.body_bytes) == (b"", 5)


@pytest.mark.parametrize("data", [LENGTH, CHUNKED], ids=["length", "chunked"])
def test_a_reply_cut_at_any_byte_is_an_error_that_holds_what_came(data: bytes):
    for end in range(1, len(data)):
        parser = ReplyParser()
        parser.feed(data[:end])
        parser.feed(b"")
        with pytest.raises(ReplyCutError) as caught:
            parser.next_reply()
        assert data.startswith(caught.value.head.split(b"\r\n\r\n")[0])
        assert b"hello".startswith(caught.value.body)


def test_an_end_before_a_reply_is_told_apart_from_a_cut():
    parser = ReplyParser()
    parser.feed(NO_CONTENT)
    assert parser.next_reply() is not None
    parser.feed(b"")
    with pytest.raises(ConnectionEndedError):
        parser.next_reply()


REFUSED = {
    "no status line": b"hello world\r\n\r\n",
    "version": b"HTTP/2.0 200 OK\r\n\r\n",
    "status": b"HTTP/1.1 99 Low\r\n\r\n",
    "bare line feed": b"HTTP/1.1 200 OK\nx: y\r\n\r\n",
    "space before colon": OK + b"x : y\r\n\r\n",
    "folded line": OK + b"x: y\r\n z\r\n\r\n",
    "no colon": OK + b"xy\r\n\r\n",
    "two lengths": OK + b"Content-Length: 0\r\nContent-Length: 0\r\n\r\n",
    "length and chunked": OK + b"Content-Length: 0\r\nTransfer-Encoding: chunked\r\n\r\n",
    "signed length": OK + b"Content-Length: +1\r\n\r\n",
    "other coding": OK + b"Transfer-Encoding: gzip\r\n\r\n",
    "chunk size": OK + b"Transfer-Encoding: chunked\r\n\r\nx\r\n",
    "chunk end": OK + b"Transfer-Encoding: chunked\r\n\r\n1\r\nab\r\n",
    "trailer": OK + b"Transfer-Encoding: chunked\r\n\r\n0\r\nx: y\r\n\r\n",
    "endless line": b"HTTP/1.1 200 " + b"x" * 70000,
}


@pytest.mark.parametrize("data", REFUSED.values(), ids=REFUSED)
def test_what_is_no_reply_is_refused(data: bytes):
    parser = ReplyParser()
    parser.feed(data)
    with pytest.raises(ReplyError) as caught:
        parser.next_reply()
    assert not isinstance(caught.value, ReplyCutError)


@settings(derandomize=True, deadline=None, max_examples=60)
@given(
    order=st.lists(st.sampled_from(sorted(CORPUS)), min_size=1, max_size=4),
    cuts=st.lists(st.integers(0, 400), max_size=6),
)
def test_pipelined_replies_come_one_by_one_however_they_are_cut(order: list[str], cuts: list[int]):
    data = b"".join(CORPUS[name] for name in order)
    edges = sorted({0, *(cut % len(data) for cut in cuts), len(data)})
    parser = ReplyParser()
    found = []
    for start, end in itertools.pairwise(edges):
        parser.feed(data[start:end])
        while (reply := parser.next_reply()) is not None:
            found.append(reply)
    assert found == [parse(CORPUS[name])[0] for name in order]
    assert parser.leftover == b""
