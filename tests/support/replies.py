"""A strict HTTP/1.1 reply parser for tests: no socket, nothing forgiven, everything kept.

Clients repair what servers do wrong; a test must see it. The parser takes bytes as they come and
gives whole replies: header names and order as sent, the head's exact bytes, the body unframed.
What follows a reply stays for the next one (RFC 9112 section 6.3 decides where a reply ends).

Spec: docs/architecture.md#tests
"""

from __future__ import annotations

import re
from collections.abc import Generator
from dataclasses import dataclass, field
from typing import Final, TypeVar

_STATUS_LINE: Final = re.compile(rb"HTTP/1\.([01]) ([1-9][0-9]{2}) ([^\x00-\x1f\x7f]*)")
_FIELD: Final = re.compile(rb"([!#$%&'*+\-.^_`|~0-9A-Za-z]+):[ \t]*([^\x00\r\n]*?)[ \t]*")
_CHUNK_SIZE: Final = re.compile(rb"([0-9A-Fa-f]{1,8})(;[^\x00-\x1f\x7f]*)?")
_LINE_MAX: Final = 65536

_T = TypeVar("_T")
_Steps = Generator[None, None, _T]  # pauses when it wants more bytes


class ReplyError(AssertionError):
    """The server sent something that is not an HTTP/1.1 reply."""


class ReplyCutError(ReplyError):
    """The connection ended in the middle of a reply; `head` and `body` hold what came."""

    def __init__(self, message: str, head: bytes, body: bytes) -> None:
        super().__init__(message)
        self.head = head
        self.body = body


class ConnectionEndedError(ReplyError):
    """The connection ended before the first byte of a reply."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Reply:
    """One final reply.

    Attributes:
        version: "1.1" or "1.0".
        headers: (name, value) as sent, order kept.
        head: The exact bytes up to and with the blank line.
        body: The body without its framing; empty if it was not kept.
        body_bytes: Its length, kept or not.
        framing: "none", "length", "chunked" or "eof".
        interim: Heads of the 1xx replies before this one.
    """

    version: str
    status: int
    reason: str
    headers: list[tuple[str, str]]
    head: bytes
    body: bytes
    body_bytes: int
    framing: str
    interim: list[bytes] = field(default_factory=list)

    def values(self, name: str) -> list[str]:
        """All values of a header, any case of its name."""
        return [value for key, value in self.headers if key.lower() == name.lower()]

    def header(self, name: str) -> str | None:
        """The value of a header that must not come twice, or None.

        Raises:
            ReplyError: It came twice.
        """
        found = self.values(name)
        if len(found) > 1:
            raise ReplyError(f"{name} came {len(found)} times: {found}")
        return found[0] if found else None

    def comparable(self) -> tuple[str, int, str, list[tuple[str, str]], bytes]:
        """What two servers must agree on byte for byte: all but the date's value."""
        headers = [(n, "*" if n.lower() == "date" else v) for n, v in self.headers]
        return self.version, self.status, self.reason, headers, self.body


class ReplyParser:
    """Bytes in, replies out; see the module docstring."""

    def __init__(self) -> None:
        self._buffer = bytearray()
        self._ended = False
        self._steps: _Steps[Reply] | None = None
        self._head = b""
        self._body = bytearray()
        self._body_bytes = 0

    @property
    def leftover(self) -> bytes:
        """Bytes received and not used yet."""
        return bytes(self._buffer)

    @property
    def ended(self) -> bool:
        """Whether the connection has ended."""
        return self._ended

    def feed(self, data: bytes) -> None:
        """Take bytes; none means that the connection ended."""
        if data:
            self._buffer += data
        else:
            self._ended = True

    def next_reply(self, *, head_only: bool = False, keep_body: bool = True) -> Reply | None:
        """The next reply, or None if more bytes are wanted.

        Args:
            head_only: The request was a HEAD. Taken from the call that begins a reply.
            keep_body: Whether to hold the body or only to count it. Likewise.

        Raises:
            ReplyCutError: The connection ended in the middle.
            ConnectionEndedError: It ended before a reply began.
            ReplyError: The bytes are no reply.
        """
        if self._steps is None:
            self._head, self._body, self._body_bytes = b"", bytearray(), 0
            self._steps = self._parse(head_only, keep_body)
        try:
            next(self._steps)
        except StopIteration as stop:
            self._steps = None
            reply: Reply = stop.value
            return reply
        return None

    def _parse(self, head_only: bool, keep_body: bool) -> _Steps[Reply]:  # noqa: FBT001 -- private
        interim: list[bytes] = []
        while True:
            version, status, reason, headers = yield from self._read_head()
            if status >= 200 or status == 101:
                break
            interim.append(self._head)
        framing, length = _framing_of(status, headers, head_only=head_only)
        if framing == "length":
            yield from self._take_body(length, keep=keep_body)
        elif framing == "chunked":
            yield from self._take_chunks(keep=keep_body)
        elif framing == "eof":
            yield from self._take_to_end(keep=keep_body)
        return Reply(
            version=version,
            status=status,
            reason=reason,
            headers=headers,
            head=self._head,
            body=bytes(self._body),
            body_bytes=self._body_bytes,
            framing=framing,
            interim=interim,
        )

    def _read_head(self) -> _Steps[tuple[str, int, str, list[tuple[str, str]]]]:
        self._head = b""
        line = yield from self._take_line()
        start = _STATUS_LINE.fullmatch(line)
        if start is None:
            raise ReplyError(f"not a status line: {line[:200]!r}")
        self._head = line + b"\r\n"
        headers: list[tuple[str, str]] = []
        while line := (yield from self._take_line()):
            self._head += line + b"\r\n"
            found = _FIELD.fullmatch(line)
            if found is None:
                raise ReplyError(f"not a header line: {line[:200]!r}")
            headers.append((found[1].decode(), found[2].decode("latin-1")))
        self._head += b"\r\n"
        return f"1.{start[1].decode()}", int(start[2]), start[3].decode("latin-1"), headers

    def _take_line(self) -> _Steps[bytes]:
        while (end := self._buffer.find(b"\n")) < 0:
            if len(self._buffer) > _LINE_MAX:
                raise ReplyError(f"a line over {_LINE_MAX} bytes")
            yield from self._want_more()
        line = bytes(self._buffer[: end + 1])
        del self._buffer[: end + 1]
        if not line.endswith(b"\r\n"):
            raise ReplyError(f"a line that ends without a carriage return: {line[:200]!r}")
        return line[:-2]

    def _take_body(self, length: int, *, keep: bool) -> _Steps[None]:
        left = length
        while left:
            piece = self._buffer[:left]
            del self._buffer[:left]
            left -= len(piece)
            self._body_bytes += len(piece)
            if keep:
                self._body += piece
            if left:
                yield from self._want_more()

    def _take_chunks(self, *, keep: bool) -> _Steps[None]:
        while True:
            line = yield from self._take_line()
            size = _CHUNK_SIZE.fullmatch(line)
            if size is None:
                raise ReplyError(f"not a chunk size: {line[:200]!r}")
            if int(size[1], 16) == 0:
                break
            yield from self._take_body(int(size[1], 16), keep=keep)
            if (end := (yield from self._take_line())) != b"":
                raise ReplyError(f"bytes after a chunk: {end[:200]!r}")
        if (trailer := (yield from self._take_line())) != b"":
            raise ReplyError(f"a trailer: {trailer[:200]!r}")

    def _take_to_end(self, *, keep: bool) -> _Steps[None]:
        while self._buffer or not self._ended:
            yield from self._take_body(len(self._buffer), keep=keep)
            if not self._ended:
                yield

    def _want_more(self) -> _Steps[None]:
        if self._ended:
            if not self._head and not self._buffer:
                raise ConnectionEndedError("the connection ended before a reply")
            message = f"cut after {len(self._head)} bytes of head, {self._body_bytes} of body"
            raise ReplyCutError(message, self._head + bytes(self._buffer), bytes(self._body))
        yield


def _framing_of(status: int, headers: list[tuple[str, str]], *, head_only: bool) -> tuple[str, int]:
    lengths = [value for name, value in headers if name.lower() == "content-length"]
    codings = [value for name, value in headers if name.lower() == "transfer-encoding"]
    if len(lengths) + len(codings) > 1:
        raise ReplyError(f"framed more than once: {lengths} {codings}")
    if codings and codings[0].lower() != "chunked":
        raise ReplyError(f"unknown transfer coding: {codings}")
    if lengths and not re.fullmatch(r"[0-9]{1,18}", lengths[0]):
        raise ReplyError(f"not a length: {lengths[0]!r}")
    if head_only or status in (101, 204, 304):
        return "none", 0
    if codings:
        return "chunked", 0
    return ("length", int(lengths[0])) if lengths else ("eof", 0)
