"""Request heads for tests: how to make one, bad ones, and how a stock uvicorn reads any.

Spec: docs/architecture.md#tests
"""

from __future__ import annotations

from typing import Final

import httptools


def raw_of(*lines: bytes, first: bytes = b"GET / HTTP/1.1", host: bool = True) -> bytes:
    """A head of the given lines, with `Host: a` unless told otherwise."""
    found = [first, *([b"Host: a"] if host else []), *lines]
    return b"".join(line + b"\r\n" for line in found) + b"\r\n"


class StockReader:
    """What a stock uvicorn takes from the same parser: the reference for headers and the rest."""

    def __init__(self, raw: bytes) -> None:
        self.headers: list[tuple[bytes, bytes]] = []
        self.url = b""
        self.keep_alive = False
        self.body = b""
        self.completed = 0
        self.sizes: list[int] = []
        self.parser = httptools.HttpRequestParser(self)
        for index in range(len(raw)):
            self.index = index
            self.parser.feed_data(raw[index : index + 1])

    def on_url(self, url: bytes) -> None:
        self.url += url

    def on_header(self, name: bytes, value: bytes) -> None:
        self.headers.append((name.lower(), value))

    def on_headers_complete(self) -> None:
        self.sizes.append(self.index + 1)
        version = self.parser.get_http_version()
        self.keep_alive = version != "1.0" and self.parser.should_keep_alive()

    def on_body(self, body: bytes) -> None:
        self.body += body

    def on_message_complete(self) -> None:
        self.completed += 1


# Refused by llhttp; here so that a change of its leniency is noticed.
BY_LLHTTP: Final = [
    raw_of(b"Content-Length: 3", b"Transfer-Encoding: chunked"),
    raw_of(b"Transfer-Encoding: chunked", b"Content-Length: 3"),
    raw_of(b"Content-Length: 3", b"Content-Length: 3"),
    raw_of(b"Content-Length: 3", b"Content-Length: 4"),
    raw_of(b"Content-Length: 3, 3"),
    raw_of(b"Content-Length: +3"),
    raw_of(b"Content-Length: -3"),
    raw_of(b"Content-Length: 0x3"),
    raw_of(b"Content-Length: 3 3"),
    raw_of(b"Content-Length:"),
    raw_of(b"Content-Length: 18446744073709551616"),
    raw_of(b"Transfer-Encoding:"),
    raw_of(b"Transfer-Encoding: gzip"),
    raw_of(b"Transfer-Encoding: identity"),
    raw_of(b"Transfer-Encoding: xchunked"),
    raw_of(b"Transfer-Encoding: chunked, gzip"),
    raw_of(b"Transfer-Encoding: chunked, chunked"),
    raw_of(b"Transfer-Encoding: chunked", b"Transfer-Encoding: chunked"),
    raw_of(b"Transfer-Encoding: \x0bchunked"),
    raw_of(b"A: b", b" c"),
    raw_of(b"A: b", b"\tc"),
    raw_of(b"A:", b" c"),
    raw_of(b" A: b"),
    raw_of(b"A: b\nC: d"),
    raw_of(b"A: b\rC: d"),
    raw_of(b"A: b\r c"),
    raw_of(b"A: b\0c"),
    raw_of(b"A: b\x01c"),
    raw_of(b"A: b\x7fc"),
    raw_of(b"A\0: c"),
    raw_of(b"A : c"),
    raw_of(b"A\t: c"),
    raw_of(b"A\xff: c"),
    raw_of(b"A(: c"),
    raw_of(b": c"),
    raw_of(b"no colon"),
    raw_of(first=b"get / HTTP/1.1"),
    raw_of(first=b"FOO / HTTP/1.1"),
    raw_of(first=b"GET\t/ HTTP/1.1"),
    raw_of(first=b"GET / HTTP/1.2"),
    raw_of(first=b"GET / http/1.1"),
    raw_of(first=b"GET / HTTP/1.1 "),
    raw_of(first=b" GET / HTTP/1.1"),
    raw_of(first=b"GET foo HTTP/1.1"),
    raw_of(first=b"GET ?a HTTP/1.1"),
    raw_of(first=b"GET http:/h HTTP/1.1"),
    raw_of(first=b"GET /\xff HTTP/1.1"),
    raw_of(first=b"GET /\x01 HTTP/1.1"),
    raw_of(first=b"GET /\0 HTTP/1.1"),
    raw_of(first=b"GET /a\tb HTTP/1.1"),
    raw_of(first=b"GET / HTTP/1.1\nA: b"),
    raw_of(first=b"GET / HTTP/1.1\rA: b"),
    raw_of(first=b"PRI * HTTP/2.0"),
]
# Let through by llhttp, refused by the gate; with the word of the message that names the rule.
BY_HAND: Final = [
    (raw_of(host=False), "no Host"),
    (raw_of(b"Host: a"), "more than one Host"),
    (raw_of(b"host: b"), "more than one Host"),
    (raw_of(b"Host: a", b"hOST: a", first=b"GET / HTTP/1.0", host=False), "more than one Host"),
    (raw_of(b"Host: a b", host=False), "not a host"),
    (raw_of(b"Host: a/b", host=False), "not a host"),
    (raw_of(b'Host: a"', host=False), "not a host"),
    (raw_of(b"Host: a\xff", host=False), "not a host"),
    (raw_of(b"Host: u@a", host=False), "not a host"),
    (raw_of(b"Transfer-Encoding: gzip, chunked"), "chunked alone"),
    (raw_of(b"Transfer-Encoding: gzip", b"Transfer-Encoding: chunked"), "chunked alone"),
    (raw_of(b"Transfer-Encoding: ,chunked"), "chunked alone"),
    (raw_of(b"Transfer-Encoding: chunked", first=b"POST / HTTP/1.0"), "on HTTP/1.1"),
    (raw_of(b"Content-Length: " + b"0" * 64 + b"7"), "too long a number"),
    (raw_of(b"Content-Length: " + b"0" * 5000), "too long a number"),
    (raw_of(first=b"GET /"), "request line"),
    (raw_of(first=b"GET / HTTP/0.9"), "request line"),
    (raw_of(first=b"GET / HTTP/2.0"), "request line"),
    (raw_of(first=b"GET / RTSP/1.1"), "request line"),
    (raw_of(first=b"GET / RTSP/1.0"), "request line"),
    (raw_of(first=b"SOURCE / ICE/1.0"), "request line"),
    (raw_of(first=b"GET  / HTTP/1.1"), "request line"),
    (raw_of(first=b"GET /  HTTP/1.1"), "request line"),
    (b"\r\n" + raw_of(), "request line"),
    (b"\n" + raw_of(), "request line"),
    (b"\r" + raw_of(), "request line"),
    (raw_of(first=b"GET * HTTP/1.1"), "neither a path"),
    (raw_of(first=b"OPTIONS * HTTP/1.1"), "neither a path"),
    (raw_of(first=b"GET ws://h/p HTTP/1.1"), "neither a path"),
    (raw_of(first=b"GET httpx://h/p HTTP/1.1"), "neither a path"),
    (raw_of(first=b"GET http://h HTTP/1.1"), "without a path"),
    (raw_of(first=b"GET http://h?x HTTP/1.1"), "without a path"),
    (raw_of(first=b"GET http://h:99999/p HTTP/1.1"), "not a valid URL"),
    (raw_of(first=b"GET http://h:/p HTTP/1.1"), "not a valid URL"),
    (raw_of(first=b"GET /a#b HTTP/1.1"), "fragment"),
    (raw_of(first=b"GET /a?b#c HTTP/1.1"), "fragment"),
    (raw_of(first=b"GET http://h/a#b HTTP/1.1"), "fragment"),
]
# Lines that may decide whether the connection is kept.
CONNECTION: Final[list[list[bytes]]] = [
    [],
    [b"Connection: close"],
    [b"connection: CLOSE"],
    [b"Connection: keep-alive"],
    [b"Connection: x, close"],
    [b"Connection: keep-alive,close"],
    [b"Connection: closed"],
    [b"Connection: close", b"Connection: keep-alive"],
    [b"Connection: keep-alive", b"Connection: close"],
    [b"Proxy-Connection: close"],
    [b"Connection: close", b"A: b"],
]
