"""The head gate: one request head out of a buffer, or the reason why it is refused.

`read_head` finds the blank line, has llhttp judge exactly the bytes up to it (all but the last
byte must leave the head incomplete, the last one completes it), and then refuses by hand the few
malformed heads that llhttp lets through. Router and lone shard run this same code, and the shard's
uvicorn parses the same bytes with the same llhttp, so no two of them see different requests.

The gate changes one thing: `neutralise_upgrade` renames `Upgrade` headers in place, since llhttp
gives no body after one and a stock uvicorn then runs that body as a second request. The gate reads
no socket and no clock, keeps nothing between calls, and knows no session.

Spec: docs/lending.md#heads
"""

from __future__ import annotations

import re
from dataclasses import replace
from typing import Final

from httptools import (
    HttpParserError,
    HttpParserInvalidURLError,
    HttpParserUpgrade,
    HttpRequestParser,
    parse_url,
)

from sessions.errors.protocol import (
    BadHeadError,
    HeadTooLargeError,
    MethodNotAllowedError,
    UpgradeRefusedError,
)
from sessions.wire.head import Framing, Head

_BLANK_LINE: Final = b"\r\n\r\n"
_LINE_EXTRA: Final = len(b"  HTTP/1.1")  # request line without method and target
_VERSIONS: Final = {b" HTTP/1.1": "1.1", b" HTTP/1.0": "1.0"}
_VERSION_BYTES: Final = len(b" HTTP/1.1")
_WATCHED: Final = frozenset(
    {b"host", b"content-length", b"transfer-encoding", b"expect", b"upgrade"}
)
_LENGTH_BYTES: Final = 64  # 64 bits have 20 digits; the rest is room for spaces and zeros
# RFC 3986 reg-name, IP-literal and port; an empty Host is legal.
_HOST_BYTES: Final = (
    b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-._~%!$&'()*+,;=:[]"
)
_UPGRADE_LINE: Final = re.compile(rb"\r\nupgrade:", re.IGNORECASE)
_NEUTRAL: Final = b"x-noupg"  # a token of the same seven bytes' length
_NEUTRAL_LINE: Final = b"\r\n" + _NEUTRAL + b":"


class _Seen:
    """What llhttp reported of one head."""

    __slots__ = ("complete", "headers", "target")

    def __init__(self) -> None:
        self.target = b""
        self.headers: list[tuple[bytes, bytes]] = []
        self.complete = False

    def on_url(self, url: bytes) -> None:
        self.target += url

    def on_header(self, name: bytes, value: bytes) -> None:
        self.headers.append((name.lower(), value))

    def on_headers_complete(self) -> None:
        self.complete = True


class _Fields:
    """What the watched headers of one head say."""

    __slots__ = (
        "content_length",
        "expects_continue",
        "framing",
        "has_host",
        "upgrades",
        "websocket",
    )

    def __init__(self) -> None:
        self.framing = Framing.NONE
        self.content_length = 0
        self.has_host = False
        self.expects_continue = False
        self.upgrades = False
        self.websocket = False


def read_head(buffer: bytes, start: int, limit_bytes: int) -> Head | None:
    """Read the head at the front of a buffer.

    Args:
        buffer: Bytes of the connection from a request's first byte on, after
            `strip_leading_crlf`; may hold body bytes and further requests too.
        start: How many bytes of it an earlier call has seen already; 0 at first.
        limit_bytes: Largest head allowed, blank line included.

    Returns:
        The head, or None when more bytes are wanted.

    Raises:
        BadHeadError: No HTTP/1.1 or 1.0 request can begin with these bytes.
        HeadTooLargeError: The head is over the limit, or will be.
        MethodNotAllowedError: The method is CONNECT.
        UpgradeRefusedError: The client insists on WebSocket.
    """
    end = buffer.find(_BLANK_LINE, max(start - 3, 0))
    size = end + 4 if end >= 0 else len(buffer)
    _refuse_hopeless(buffer, start, min(size, limit_bytes))
    if size > limit_bytes or (end < 0 and size == limit_bytes):
        raise HeadTooLargeError(f"the request head is over the limit of {limit_bytes} bytes")
    if end < 0:
        return None
    seen, parser, keep_alive = _judge(buffer[:size])
    method, target = parser.get_method(), seen.target
    line_end = buffer.find(b"\r\n")
    version = _VERSIONS.get(buffer[line_end - _VERSION_BYTES : line_end])
    # llhttp also takes other protocols and versions, runs of spaces, line ends before the line.
    if version is None or len(method) + len(target) + _LINE_EXTRA != line_end:
        raise BadHeadError("the request line is not METHOD TARGET HTTP/1.1, single spaces between")
    if method == b"CONNECT":
        raise MethodNotAllowedError("CONNECT is not served here")
    fields = _fields_of(seen.headers, version)
    # On HTTP/1.0 or without `Connection: upgrade` it means nothing (RFC 9110 section 7.8).
    if fields.websocket and version == "1.1" and parser.should_upgrade():
        raise UpgradeRefusedError("WebSocket is not served here, use plain HTTP requests")
    return Head(
        method=method,
        target=target,
        path=_path_of(target),
        http_version=version,
        headers=seen.headers,
        size=size,
        framing=fields.framing,
        content_length=fields.content_length,
        keep_alive=keep_alive and version == "1.1",
        expects_continue=fields.expects_continue,
        upgrades=fields.upgrades,
    )


def strip_leading_crlf(buffer: bytes) -> bytes:
    """Drop empty lines before a request line (RFC 9112 section 2.2).

    A bare LF or CR stays, for `read_head` to refuse; the same object comes back when nothing is
    dropped.
    """
    index = 0
    while buffer.startswith(b"\r\n", index):
        index += 2
    return buffer[index:] if index else buffer


def neutralise_upgrade(buffer: bytes, head: Head) -> bytes:
    """Rename every `Upgrade` header of a head to a name that nobody acts on.

    Args:
        buffer: Begins with the head's raw bytes; what follows them is kept.
        head: As read from this buffer.

    Returns:
        The buffer, same length; the same object when there is nothing to rename.
    """
    if not head.upgrades:
        return buffer
    return _UPGRADE_LINE.sub(_NEUTRAL_LINE, buffer[: head.size]) + buffer[head.size :]


def neutral_head(head: Head) -> Head:
    """The head that a reader of the neutralised bytes gets; the same object without `Upgrade`."""
    if not head.upgrades:
        return head
    headers = [(_NEUTRAL if name == b"upgrade" else name, value) for name, value in head.headers]
    return replace(head, headers=headers, upgrades=False)


def _refuse_hopeless(buffer: bytes, start: int, end: int) -> None:
    """Refuse a head that cannot be or become a good one, so its sender need not time out.

    A whole head comes here too: the answer must not depend on the pieces in which it arrived.
    """
    if not buffer or buffer == b"\r":
        return
    if not b"A" <= buffer[:1] <= b"Z":  # every method begins with a capital; TLS with 0x16
        raise BadHeadError("the request line does not begin with a method in capital letters")
    if buffer.count(b"\n", start, end) != buffer.count(b"\r\n", max(start - 1, 0), end):
        raise BadHeadError("a line of the request head ends without CR")


def _judge(raw: bytes) -> tuple[_Seen, HttpRequestParser, bool]:
    """Have llhttp read one head; also says whether it would keep the connection."""
    seen = _Seen()
    parser = HttpRequestParser(seen)
    keep_alive = early = False
    try:
        parser.feed_data(raw[:-1])
        early = seen.complete
        keep_alive = parser.should_keep_alive()  # forgotten as soon as a message is complete
        parser.feed_data(raw[-1:])
    except HttpParserUpgrade:
        pass
    except HttpParserError as error:
        raise BadHeadError(f"the request head is malformed: {error}") from error
    if early or not seen.complete:
        raise BadHeadError("the request head does not end at its first blank line")
    return seen, parser, keep_alive


def _fields_of(headers: list[tuple[bytes, bytes]], version: str) -> _Fields:
    fields = _Fields()
    for name, value in headers:
        if name not in _WATCHED:
            continue
        if name == b"host":
            if fields.has_host:
                raise BadHeadError("the request has more than one Host header")
            if value.rstrip(b" \t").translate(None, _HOST_BYTES):
                raise BadHeadError("the Host header is not a host and port")
            fields.has_host = True
        elif name == b"content-length":
            # llhttp let only one pass, digits only, none beside Transfer-Encoding; but it counts
            # no leading zeros, and int() refuses thousands of them.
            if len(value) > _LENGTH_BYTES:
                raise BadHeadError("the Content-Length is too long a number")
            fields.framing = Framing.LENGTH
            fields.content_length = int(value)
        elif name == b"transfer-encoding":
            if version == "1.0" or value.rstrip(b" \t").lower() != b"chunked":
                raise BadHeadError("Transfer-Encoding is served as chunked alone, on HTTP/1.1")
            fields.framing = Framing.CHUNKED
        elif name == b"expect":
            fields.expects_continue = value.lower() == b"100-continue"
        else:
            fields.upgrades = True
            fields.websocket |= b"websocket" in value.lower()
    if version == "1.1" and not fields.has_host:
        raise BadHeadError("the request has no Host header")
    return fields


def _path_of(target: bytes) -> bytes:
    if b"#" in target:
        raise BadHeadError("the request target has a fragment")
    if target.startswith(b"/"):
        return target.partition(b"?")[0]
    if not target[:8].lower().startswith((b"http://", b"https://")):
        raise BadHeadError("the request target is neither a path nor an http URL")
    try:
        path = parse_url(target).path
    except HttpParserInvalidURLError as error:
        raise BadHeadError("the request target is not a valid URL") from error
    if not path:
        raise BadHeadError("the request target is a URL without a path")
    return path
