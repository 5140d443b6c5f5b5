"""The head of an engine's reply: found in the bytes, judged by llhttp, interim heads skipped.

`ReplyHeadReader` collects bytes up to the blank line and has llhttp read exactly these; the body
never passes through it. Then it says how the body's end is known (RFC 9112 section 6.3). What can
become no HTTP/1 head is refused at once, so that nobody waits for its end.

Must not know sockets, nor what the reply means.

Spec: docs/architecture.md#engine
"""

from __future__ import annotations

from dataclasses import dataclass
from http import HTTPStatus
from typing import Final

from httptools import HttpParserError, HttpParserUpgrade, HttpResponseParser

from sessions.engine.framing import BodyEnd
from sessions.errors.engine import EngineUnreachableError
from sessions.errors.unseen import LocalProtocolError

HEAD_LIMIT_BYTES: Final = 65536  # as much as we take from clients
_BLANK_LINE: Final = b"\r\n\r\n"
_BEGINNING: Final = b"HTTP/1."
_LENGTH_DIGITS: Final = 20  # 64 bits
_BODILESS: Final = frozenset({HTTPStatus.NO_CONTENT, HTTPStatus.NOT_MODIFIED})


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplyHead:
    """One final head.

    Attributes:
        status: 200 to 999.
        headers: list of (name, value), names lower-case, order kept, no white space around values.
        body_end: How the body's end is known.
        content_length: Bytes of the body under `BodyEnd.LENGTH`, else 0.
        keep_alive: Whether another request may follow on the connection.
    """

    status: int
    headers: list[tuple[bytes, bytes]]
    body_end: BodyEnd
    content_length: int
    keep_alive: bool


class ReplyHeadReader:
    """Reads one final head; feed it every byte in order, from the reply's first."""

    __slots__ = ("_buffer", "_is_done", "_is_head_request")

    def __init__(self, *, is_head_request: bool) -> None:
        """Begin.

        Args:
            is_head_request: The request's method is HEAD, so the reply has no body.
        """
        self._is_head_request = is_head_request
        self._buffer = bytearray()
        self._is_done = False

    def feed(self, data: memoryview) -> tuple[ReplyHead, int] | None:
        """Take the next bytes.

        Args:
            data: Those that follow the last call's; copied as far as they are of the head.

        Returns:
            The final head and the index in `data` just after it, or None if more is wanted.

        Raises:
            EngineUnreachableError: This is no HTTP/1 reply. The reader is of no more use.
            LocalProtocolError: The head was given already.
        """
        if self._is_done:
            raise LocalProtocolError("the reply's head has been read already")
        index, buffer = 0, self._buffer
        while index < len(data):
            known = len(buffer)
            buffer += data[index : index + HEAD_LIMIT_BYTES + 1 - known]
            end = buffer.find(_BLANK_LINE, max(known - 3, 0))
            size = end + len(_BLANK_LINE) if end >= 0 else len(buffer)
            _refuse_hopeless(buffer, known, size)
            if size > HEAD_LIMIT_BYTES:
                raise _broken(f"its head is over {HEAD_LIMIT_BYTES} bytes")
            if end < 0:
                return None
            index += size - known
            head = _parse(bytes(buffer[:size]), is_head_request=self._is_head_request)
            buffer.clear()
            if head is not None:
                self._is_done = True
                return head, index
        return None


def _refuse_hopeless(buffer: bytearray, known: int, size: int) -> None:
    if not buffer.startswith(_BEGINNING[: len(buffer)]):
        raise _broken("it does not begin as HTTP/1 does")
    if buffer.count(b"\n", known, size) != buffer.count(b"\r\n", max(known - 1, 0), size):
        raise _broken("a line of its head ends without CR")


class _Seen:
    """What llhttp reports of a head."""

    __slots__ = ("headers",)

    def __init__(self) -> None:
        self.headers: list[tuple[bytes, bytes]] = []

    def on_header(self, name: bytes, value: bytes) -> None:
        self.headers.append((name.lower(), value.strip(b" \t")))


def _parse(raw: bytes, *, is_head_request: bool) -> ReplyHead | None:
    """A whole head; None for an interim one (RFC 9110 section 15.2)."""
    seen = _Seen()
    parser = HttpResponseParser(seen)
    try:
        parser.feed_data(raw)
    except HttpParserUpgrade as error:
        raise _broken("it switches to a protocol that nobody asked for") from error
    except HttpParserError as error:
        raise _broken(f"its head is malformed: {error}") from error
    status = parser.get_status_code()
    if status < HTTPStatus.OK:
        return None
    values = _values_of(seen.headers)
    body_end, length = _body_end_of(values)
    if is_head_request or status in _BODILESS:
        body_end, length = BodyEnd.NONE, 0
    is_kept = b"close" not in values[b"connection"] and (
        parser.get_http_version() == "1.1" or b"keep-alive" in values[b"connection"]
    )
    return ReplyHead(
        status=status,
        headers=seen.headers,
        body_end=body_end,
        content_length=length,
        keep_alive=is_kept and body_end is not BodyEnd.CLOSE,
    )


def _values_of(headers: list[tuple[bytes, bytes]]) -> dict[bytes, list[bytes]]:
    """The members, lower-case, of the three lists that decide about the body and its connection."""
    found: dict[bytes, list[bytes]] = {
        b"connection": [],
        b"content-length": [],
        b"transfer-encoding": [],
    }
    for name, value in headers:
        if name in found:
            found[name] += [member.strip(b" \t").lower() for member in value.split(b",")]
    return found


def _body_end_of(values: dict[bytes, list[bytes]]) -> tuple[BodyEnd, int]:
    codings, lengths = values[b"transfer-encoding"], values[b"content-length"]
    if codings:
        # llhttp lets none pass beside a Content-Length, but it lets other codings pass.
        if codings != [b"chunked"]:
            raise _broken("its transfer coding is not chunked alone")
        return BodyEnd.CHUNKED, 0
    if lengths:
        # llhttp let only one pass, of digits; but it counts no leading zeros.
        if len(lengths[0]) > _LENGTH_DIGITS:
            raise _broken("its Content-Length is too long a number")
        return BodyEnd.LENGTH, int(lengths[0])
    return BodyEnd.CLOSE, 0


def _broken(reason: str) -> EngineUnreachableError:
    return EngineUnreachableError(f"the engine's reply is no HTTP/1.1: {reason}")
