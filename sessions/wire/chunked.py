"""Where a chunked request body ends, to the byte.

A shard feeds its parser exactly the body and keeps what follows for the next request, so it must
know the end before the parser sees the bytes. `ChunkedScanner` walks chunk by chunk over pieces of
any size (RFC 9112 section 7.1). It is as strict as llhttp or stricter about framing; extensions
and trailers are measured, not understood, and left to llhttp. What cannot become a good line is
refused at its first wrong byte, so that the answer does not depend on the pieces. It never holds
data bytes.

Spec: docs/lending.md#heads
"""

from __future__ import annotations

import enum
from typing import Final

from sessions.errors.protocol import BadBodyError
from sessions.errors.unseen import LocalProtocolError

# One line, all extensions together, all trailers together; Node allows as much.
LINE_LIMIT_BYTES: Final = 16384
SIZE_LIMIT_DIGITS: Final = 16  # 64 bits; llhttp counts no further
_HEX: Final = b"0123456789abcdefABCDEF"


class _State(enum.Enum):
    SIZE = enum.auto()
    DATA = enum.auto()
    TRAILER = enum.auto()
    DONE = enum.auto()


class ChunkedScanner:
    """Scans one body; feed it every piece in order, from the first byte after the head.

    Attributes:
        data_bytes: Data of all chunks whose size line was seen, arrived or not; framing is not
            counted.
    """

    MORE: Final = -1

    __slots__ = ("_extensions_spare", "_left", "_line", "_spare", "_state", "data_bytes")

    def __init__(self) -> None:
        self._state = _State.SIZE
        self._line = b""  # an unfinished line
        self._left = 0  # in DATA: bytes to skip, the CRLF after them included
        self._spare = LINE_LIMIT_BYTES  # in TRAILER: bytes still allowed
        self._extensions_spare = LINE_LIMIT_BYTES  # likewise of extensions, in SIZE
        self.data_bytes = 0

    def feed(self, data: bytes) -> int:
        """Scan the next piece.

        Args:
            data: The bytes that follow those of the last call; may be empty.

        Returns:
            The index in `data` just after the body's last byte, or `MORE`.

        Raises:
            BadBodyError: The framing is broken or a line is over its limit. The scanner is then
                of no more use.
            LocalProtocolError: The body has ended already.
        """
        if self._state is _State.DONE:
            raise LocalProtocolError("the chunked body has ended already")
        index, size = 0, len(data)
        while index < size:
            if self._state is _State.DATA:
                index = self._skip_data(data, index)
                continue
            feed = data.find(b"\n", index)
            if feed < 0:
                self._keep_line(data[index:])
                self._check_text(self._line.removesuffix(b"\r"))
                break
            line = self._whole_line(data[index : feed + 1])
            index = feed + 1
            if self._state is _State.SIZE:
                self._begin_chunk(line)
            elif self._end_trailer(line):
                self._state = _State.DONE
                return index
        return self.MORE

    def _skip_data(self, data: bytes, index: int) -> int:
        """Pass over chunk data and the CRLF after it; returns the index behind what was passed."""
        # The last two bytes of what is left are the CRLF: look only at those that are here.
        stop = min(len(data), index + self._left)
        left_after = self._left - (stop - index)
        if left_after < 2:  # noqa: PLR2004 - the two bytes of CRLF
            have = min(2 - left_after, stop - index)
            if data[stop - have : stop] != b"\r\n"[2 - left_after - have : 2 - left_after]:
                raise BadBodyError("chunk data is not followed by CRLF")
        self._left = left_after
        if not left_after:
            self._state = _State.SIZE
        return stop

    def _keep_line(self, piece: bytes) -> None:
        self._line += piece
        if len(self._line) > self._line_limit:
            raise BadBodyError(f"a line of the chunked body is over {LINE_LIMIT_BYTES} bytes")

    def _whole_line(self, piece: bytes) -> bytes:
        """The line that `piece` completes, without its CRLF."""
        self._keep_line(piece)
        line, self._line = self._line, b""
        text = line[:-1].removesuffix(b"\r")
        self._check_text(text)
        if not line.endswith(b"\r\n"):
            raise BadBodyError("a line of the chunked body does not end in CRLF")
        return text

    def _check_text(self, text: bytes) -> None:
        """Refuse a line, whole or begun, that is wrong already; given without its line end."""
        if self._state is _State.SIZE:
            digits = text.partition(b";")[0]
            if not digits or digits.translate(None, _HEX):
                raise BadBodyError("a chunk size is not hexadecimal")
            if len(digits) > SIZE_LIMIT_DIGITS:
                raise BadBodyError(f"a chunk size has more than {SIZE_LIMIT_DIGITS} digits")
        if b"\r" in text:
            raise BadBodyError("a line of the chunked body does not end in CRLF")

    @property
    def _line_limit(self) -> int:
        return self._spare if self._state is _State.TRAILER else LINE_LIMIT_BYTES

    def _begin_chunk(self, line: bytes) -> None:
        digits = line.partition(b";")[0]
        self._extensions_spare -= len(line) - len(digits)
        if self._extensions_spare < 0:  # else a body of nothing could go on for ever
            raise BadBodyError(f"all extensions of the body are over {LINE_LIMIT_BYTES} bytes")
        count = int(digits, 16)
        self.data_bytes += count
        if count:
            self._left = count + 2
            self._state = _State.DATA
        else:
            self._state = _State.TRAILER

    def _end_trailer(self, line: bytes) -> bool:
        """Take one trailer line; says whether it is the empty one."""
        self._spare -= len(line) + 2
        return not line
