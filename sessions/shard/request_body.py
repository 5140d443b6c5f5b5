"""Where the body of the request in hand ends, and what it says, whatever its framing.

A shard reads exactly one request of a lent connection; bytes behind its last one belong to the
next exchange and must reach no parser here (lending rule 12). `RequestBody` counts a body of known
length and scans a chunked one. `ChunkDecoder` has llhttp take the chunks apart, as in a stock
uvicorn, and must see the same end.

Spec: docs/lending.md#bodies
"""

from __future__ import annotations

from httptools import HttpParserError, HttpRequestParser

from sessions.errors.protocol import BadBodyError
from sessions.errors.unseen import LocalProtocolError
from sessions.wire.chunked import ChunkedScanner


class RequestBody:
    """Counts one body; made when its head is parsed.

    Attributes:
        size: Bytes that the client announced so far, arrived or not: the content length, or the
            sizes of the chunks that were begun; what frames them is not counted.
        is_chunked: Whether `size` can grow.
        is_whole: Whether the last byte was fed.
    """

    __slots__ = ("_left", "_scanner", "is_chunked", "is_whole", "size")

    def __init__(self, *, content_length: int, chunked: bool) -> None:
        """Start before the first body byte.

        Args:
            content_length: Bytes of the body; 0 if it is chunked or there is none.
            chunked: Whether the body says its own end.
        """
        self._scanner = ChunkedScanner() if chunked else None
        self._left = content_length
        self.size = content_length
        self.is_chunked = chunked
        self.is_whole = not chunked and content_length == 0

    def feed(self, data: bytes) -> int:
        """How many of these bytes belong to the body; `is_whole` tells whether it ends there.

        Raises:
            BadBodyError: The chunked framing is broken.
        """
        if self.is_whole:
            return 0
        if self._scanner is None:
            taken = min(self._left, len(data))
            self._left -= taken
            self.is_whole = self._left == 0
        else:
            end = self._scanner.feed(data)
            self.is_whole = end != ChunkedScanner.MORE
            taken = end if self.is_whole else len(data)
            self.size = self._scanner.data_bytes
        return taken


class ChunkDecoder:
    """Gives the data of one chunked body; made when its head is read.

    Attributes:
        is_whole: Whether llhttp saw the end.
    """

    def __init__(self, head: bytes) -> None:
        """Start before the first body byte.

        Args:
            head: The request's raw head, with `Transfer-Encoding: chunked`.

        Raises:
            BadBodyError: llhttp takes it for something else.
        """
        self.is_whole = False
        self._is_begun = False
        self._pieces: list[bytes] = []
        self._parser = HttpRequestParser(self)
        self.feed(head)

    def feed(self, data: bytes) -> bytes:
        """The data in the next piece of the body.

        Raises:
            BadBodyError: llhttp refuses it.
        """
        try:
            self._parser.feed_data(data)
        except HttpParserError as error:
            message = "the request body is malformed: Invalid HTTP request received."
            raise BadBodyError(message) from error
        pieces, self._pieces = self._pieces, []
        return b"".join(pieces)

    def on_message_begin(self) -> None:
        """Begin the one request.

        Raises:
            LocalProtocolError: A second one begins: llhttp ended the body before the scanner did.
                The parser turns it into its own error, and the bytes are executed by nobody.
        """
        if self._is_begun:
            raise LocalProtocolError("a second request in one loan")
        self._is_begun = True

    def on_body(self, data: bytes) -> None:
        """Take data of a chunk."""
        self._pieces.append(data)

    def on_message_complete(self) -> None:
        """Note where llhttp sees the end."""
        self.is_whole = True
