"""Where the data of a reply's body stands among its bytes, and where the body ends.

One framing each for what RFC 9112 section 6.3 knows. `step` walks over a piece of any size and
gives runs of data as views, without copying any; it can stop after each run and go on later.

Must not know content codings or sockets.

Spec: docs/architecture.md#engine
"""

from __future__ import annotations

import enum
import re
from typing import Final, Protocol

from sessions.errors.engine import EngineUnreachableError
from sessions.errors.unseen import LocalProtocolError
from sessions.wire.chunked import LINE_LIMIT_BYTES, SIZE_LIMIT_DIGITS

_WINDOW_BYTES: Final = 64  # of a line at a time: size lines are short
_CRLF_BYTES: Final = 2
_HEX: Final = b"0123456789abcdefABCDEF"
_NOTHING: Final = memoryview(b"")


class BodyEnd(enum.Enum):
    """How the end of a reply's body is known."""

    NONE = enum.auto()  # there is no body
    LENGTH = enum.auto()
    CHUNKED = enum.auto()
    CLOSE = enum.auto()  # the end of the connection is the end of the body


class Framing(Protocol):
    """One body's framing."""

    @property
    def is_done(self) -> bool:
        """Whether the body is whole."""
        ...

    def step(self, data: memoryview, index: int) -> tuple[memoryview, int]:
        """Walk on; not after the end.

        Args:
            data: Bytes of the connection.
            index: Where in `data` to go on; less than its length.

        Returns:
            (a run of body data, maybe empty; the index after what was walked over). The run is a
            view into `data`.

        Raises:
            EngineUnreachableError: The framing is broken.
            LocalProtocolError: The body had ended.
        """
        ...

    def end(self) -> None:
        """The connection ended; nothing happens if the body is whole or is so now.

        Raises:
            EngineUnreachableError: The body broke off.
        """
        ...


def framing_of(body_end: BodyEnd, content_length: int) -> Framing:
    """The framing of one body, at its beginning."""
    if body_end is BodyEnd.CHUNKED:
        return ChunkedFraming()
    if body_end is BodyEnd.CLOSE:
        return CloseFraming()
    return LengthFraming(content_length if body_end is BodyEnd.LENGTH else 0)


class LengthFraming:
    """So many bytes, all data."""

    __slots__ = ("_left",)

    def __init__(self, count: int) -> None:
        self._left = count

    @property
    def is_done(self) -> bool:
        """See `Framing`."""
        return not self._left

    def step(self, data: memoryview, index: int) -> tuple[memoryview, int]:
        """See `Framing`."""
        if not self._left:
            raise LocalProtocolError("the body has ended already")
        run = data[index : index + self._left]
        self._left -= len(run)
        return run, index + len(run)

    def end(self) -> None:
        """See `Framing`."""
        if self._left:
            raise EngineUnreachableError(
                f"the engine's reply broke off, {self._left} bytes before its end"
            )


class CloseFraming:
    """All that comes, until the connection ends."""

    __slots__ = ("_is_done",)

    def __init__(self) -> None:
        self._is_done = False

    @property
    def is_done(self) -> bool:
        """See `Framing`."""
        return self._is_done

    def step(self, data: memoryview, index: int) -> tuple[memoryview, int]:
        """See `Framing`."""
        if self._is_done:
            raise LocalProtocolError("the body has ended already")
        return data[index:], len(data)

    def end(self) -> None:
        """See `Framing`."""
        self._is_done = True


class _State(enum.Enum):
    SIZE = enum.auto()
    DATA = enum.auto()
    DATA_END = enum.auto()
    TRAILER = enum.auto()
    DONE = enum.auto()


# What stands before the data of a chunk, if no extension and no end of a piece is in the way.
_USUAL: Final = {
    _State.SIZE: re.compile(rb"([0-9a-fA-F]{1,16})\r\n"),
    _State.DATA_END: re.compile(rb"\r\n([0-9a-fA-F]{1,16})\r\n"),
}


class ChunkedFraming:
    """Chunks (RFC 9112 section 7.1); extensions and trailers are measured and dropped."""

    __slots__ = ("_left", "_line", "_spare", "_state")

    def __init__(self) -> None:
        self._state = _State.SIZE
        self._left = 0  # data bytes of the chunk that are still to come
        self._line = b""  # an unfinished line
        self._spare = LINE_LIMIT_BYTES  # of extensions and trailers together

    @property
    def is_done(self) -> bool:
        """See `Framing`."""
        return self._state is _State.DONE

    def step(self, data: memoryview, index: int) -> tuple[memoryview, int]:
        """See `Framing`."""
        if self._state is _State.DONE:
            raise LocalProtocolError("the body has ended already")
        if self._state is not _State.DATA:
            usual = _USUAL.get(self._state)
            found = usual.match(data, index) if usual is not None and not self._line else None
            if found is None:
                return _NOTHING, self._walk_line(data, index)
            # Nothing unusual between two chunks: a third of what the lines would cost apart.
            index = found.end()
            self._begin_chunk(found[1])
        run = data[index : index + self._left]
        self._left -= len(run)
        if not self._left and self._state is _State.DATA:
            self._state = _State.DATA_END
        return run, index + len(run)

    def end(self) -> None:
        """See `Framing`."""
        if self._state is not _State.DONE:
            raise EngineUnreachableError("the engine's reply broke off within its chunks")

    def _walk_line(self, data: memoryview, index: int) -> int:
        window = bytes(data[index : index + _WINDOW_BYTES])
        feed = window.find(b"\n")
        if feed < 0:
            self._line += window
            self._check(self._line)
            return index + len(window)
        line = self._line + window[: feed + 1]
        self._line = b""
        if not line.endswith(b"\r\n"):
            raise _broken("a line ends without CR")
        text = line[:-_CRLF_BYTES]
        self._check(text)
        if b"\r" in text:
            raise _broken("a line has a CR within")
        self._take(text)
        return index + feed + 1

    def _check(self, begun: bytes) -> None:
        """Refuse a line that is wrong already, whole or begun."""
        if self._state is _State.DATA_END:
            if begun not in {b"", b"\r"}:
                raise _broken("the data of a chunk is not followed by CRLF")
            return
        if len(begun) > self._spare + SIZE_LIMIT_DIGITS:
            raise _broken(f"extensions or trailers are over {LINE_LIMIT_BYTES} bytes")
        if self._state is _State.SIZE:
            digits = begun.removesuffix(b"\r").partition(b";")[0]
            if not digits or digits.translate(None, _HEX) or len(digits) > SIZE_LIMIT_DIGITS:
                raise _broken("a chunk size is no hexadecimal number of 64 bits")

    def _take(self, text: bytes) -> None:
        """Act on a whole line."""
        if self._state is _State.DATA_END:
            self._state = _State.SIZE
        elif self._state is _State.TRAILER:
            self._spare -= len(text) + _CRLF_BYTES
            if not text:
                self._state = _State.DONE
        else:
            digits = text.partition(b";")[0]
            self._spare -= len(text) - len(digits)
            self._begin_chunk(digits)

    def _begin_chunk(self, digits: bytes) -> None:
        self._left = int(digits, 16)
        self._state = _State.DATA if self._left else _State.TRAILER


def _broken(reason: str) -> EngineUnreachableError:
    return EngineUnreachableError(f"the engine's reply broke off: its chunks are wrong, {reason}")
