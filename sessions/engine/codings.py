"""Content codings of replies, undone piece by piece with bounded output (RFC 9110 section 8.4).

We ask engines for none, but one may stand behind a gateway that compresses anyway. A decoder gives
at most `PIECE_BYTES` at a time, however much its input swells, and says at the end whether the
stream was whole.

Must not know framing or sockets.

Spec: docs/architecture.md#engine
"""

from __future__ import annotations

import contextlib
import zlib
from collections.abc import Callable
from typing import Final, Protocol

from sessions.errors.engine import EngineReplyUnusableError

PIECE_BYTES: Final = 262144
_NOTHING: Final = memoryview(b"")
_GZIP_WINDOW: Final = 31
_ZLIB_WINDOW: Final = 15
_RAW_WINDOW: Final = -15
_ZLIB_HEADER_BYTES: Final = 2
_DEFLATE: Final = 8  # the method in a zlib header
_ZSTD_READ_BYTES: Final = 131072
_ZSTD_WINDOW_BYTES: Final = 8 << 20  # RFC 9659: what a receiver must be able to hold
# A whole zstd frame of one raw block: what it decodes to can only follow whole frames.
_ZSTD_MARK: Final = b"the end of frames"
_ZSTD_MARK_FRAME: Final = (
    b"\x28\xb5\x2f\xfd\x20"
    + bytes([len(_ZSTD_MARK)])
    + (len(_ZSTD_MARK) << 3 | 1).to_bytes(3, "little")
    + _ZSTD_MARK
)


class Decoder(Protocol):
    """Undoes one coding."""

    def feed(self, data: memoryview) -> None:
        """Lend coded bytes; only when `next_piece` had no more to give.

        Args:
            data: Not empty; shared until `next_piece` has no more to give, or `keep_rest`.
        """
        ...

    def keep_rest(self) -> None:
        """Copy what is left of the lent bytes: their owner needs its buffer again."""
        ...

    def next_piece(self) -> memoryview:
        """Decode on.

        Returns:
            At most `PIECE_BYTES`, shared until the next call; empty when more must be fed.

        Raises:
            EngineReplyUnusableError: The stream is broken.
        """
        ...

    def end(self) -> None:
        """There is no more to feed.

        Raises:
            EngineReplyUnusableError: The stream ends too early.
        """
        ...


def decoder_of(coding: str) -> Decoder | None:
    """The decoder for the value of Content-Encoding; None if there is nothing to undo.

    Raises:
        EngineReplyUnusableError: Nobody here knows the coding.
    """
    names = [name for n in coding.split(",") if (name := n.strip().lower()) not in {"", "identity"}]
    if not names:
        return None
    make = _DECODERS.get(names[0])
    if make is None or len(names) > 1:
        raise EngineReplyUnusableError(
            f"the engine's reply has the content coding {coding!r}, which nobody asked for"
        )
    return make()


class ZlibDecoder:
    """gzip, of one or more members, and deflate, with zlib's header or without."""

    __slots__ = ("_data", "_first", "_is_begun", "_stream", "_window")

    def __init__(self, window: int | None) -> None:
        """Begin.

        Args:
            window: zlib's `wbits`; None to look at the first two bytes whether they are a zlib
                header, since some servers send deflate without (RFC 9110 section 8.4.1.2).
        """
        self._window = window
        self._first = b""
        self._stream = zlib.decompressobj(window) if window is not None else None
        self._data: memoryview | bytes = b""
        self._is_begun = False

    def feed(self, data: memoryview) -> None:
        """See `Decoder`."""
        self._data = data
        self._is_begun = True
        if self._window is None:
            self._first += data
            if len(self._first) < _ZLIB_HEADER_BYTES:
                self._data = b""
                return
            self._data, self._window = self._first, _window_of(self._first)
        if self._stream is None:
            self._stream = zlib.decompressobj(self._window)

    def keep_rest(self) -> None:
        """See `Decoder`; what zlib leaves is a copy already."""

    def next_piece(self) -> memoryview:
        """See `Decoder`."""
        found = b""
        while self._stream is not None and self._window is not None and not found:
            if self._stream.eof:
                if not self._data:
                    break
                self._stream = zlib.decompressobj(self._window)
            try:
                found = self._stream.decompress(self._data, PIECE_BYTES)
            except zlib.error as error:
                raise _undecodable(str(error)) from error
            is_ended = self._stream.eof
            self._data = self._stream.unused_data if is_ended else self._stream.unconsumed_tail
            if not self._data:
                break
        return memoryview(found)

    def end(self) -> None:
        """See `Decoder`."""
        if self._is_begun and (self._stream is None or not self._stream.eof):
            raise _undecodable("it ends too early")


def _window_of(first: bytes) -> int:
    """The `wbits` of deflated data by its first two bytes (RFC 1950 section 2.2)."""
    is_zlib = first[0] & 0xF == _DEFLATE and int.from_bytes(first[:2]) % 31 == 0
    return _ZLIB_WINDOW if is_zlib else _RAW_WINDOW


class _Dry(Exception):  # noqa: N818 - no error: it never leaves this module
    """There is no input at the moment."""


class _Source:
    """A file to read coded bytes from; it runs dry and fills again."""

    __slots__ = ("data",)

    def __init__(self) -> None:
        self.data: memoryview | bytes = b""

    def read(self, count: int) -> bytes:
        if not self.data:
            raise _Dry
        found = bytes(self.data[:count])
        self.data = self.data[count:]
        return found


class ZstdDecoder:
    """zstd, of one or more frames."""

    __slots__ = ("_buffer", "_is_begun", "_reader", "_source", "_view", "_zstd_error")

    def __init__(self) -> None:
        # Imported only here: hardly any engine sends it, and it costs a megabyte.
        import zstandard  # noqa: PLC0415 - see above

        self._zstd_error = zstandard.ZstdError
        self._source = _Source()
        # The only interface of the library with bounded output. A source that raises leaves the
        # reader as it was: it reads only after it gave all that it had decoded.
        self._reader = zstandard.ZstdDecompressor(max_window_size=_ZSTD_WINDOW_BYTES).stream_reader(
            self._source,  # type: ignore[arg-type]  # its `read` is all that is used
            read_size=_ZSTD_READ_BYTES,
            read_across_frames=True,
        )
        self._buffer = bytearray(PIECE_BYTES)
        self._view = memoryview(self._buffer)
        self._is_begun = False

    def feed(self, data: memoryview) -> None:
        """See `Decoder`."""
        self._source.data = data
        self._is_begun = True

    def keep_rest(self) -> None:
        """See `Decoder`."""
        self._source.data = bytes(self._source.data)

    def next_piece(self) -> memoryview:
        """See `Decoder`."""
        try:
            count = self._reader.readinto1(self._buffer)
        except _Dry:
            return _NOTHING
        except self._zstd_error as error:
            raise _undecodable(str(error)) from error
        return self._view[:count]

    def end(self) -> None:
        """See `Decoder`.

        The library does not say whether a frame is whole, so one more is fed: within an unfinished
        one its bytes would mean something else.
        """
        if not self._is_begun:
            return
        found = b""
        with contextlib.suppress(EngineReplyUnusableError):
            # In two parts: a whole frame at once is decoded apart if only a header is unfinished.
            for part in (_ZSTD_MARK_FRAME[:1], _ZSTD_MARK_FRAME[1:]):
                self._source.data = part
                while piece := self.next_piece():
                    found += piece
        if found != _ZSTD_MARK:
            raise _undecodable("it ends too early")


_DECODERS: Final[dict[str, Callable[[], Decoder]]] = {
    "gzip": lambda: ZlibDecoder(_GZIP_WINDOW),
    "x-gzip": lambda: ZlibDecoder(_GZIP_WINDOW),
    "deflate": lambda: ZlibDecoder(None),
    "zstd": ZstdDecoder,
}


def _undecodable(reason: str) -> EngineReplyUnusableError:
    return EngineReplyUnusableError(f"the engine's reply cannot be decoded: {reason}")
