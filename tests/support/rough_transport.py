"""A stream transport without a socket that splits, delays, stops and drops as a test tells it.

What the client sends arrives in the pieces in which the test lets it arrive, and not while reading
is paused. What is written stays in the buffer while the transport is stalled. A drop loses both.

Spec: docs/architecture.md#tests
"""

from __future__ import annotations

import asyncio


class RoughTransport(asyncio.Transport):
    """The network and the kernel in one; see the module docstring.

    Attributes:
        written: What has left, in the order of the writes.
        takes_input: Whether the protocol wants input.
        has_shut_down: Whether writing was shut down, and everything before has left.
    """

    def __init__(self, protocol: asyncio.Protocol) -> None:
        super().__init__()
        self.written: list[bytes] = []
        self.takes_input = True
        self.has_shut_down = False
        self._protocol = protocol
        self._pending = b""
        self._buffer: list[bytes] = []
        self._is_stalled = False
        self._is_over_limit = False
        self._high_bytes = 65536
        self._wants_eof = False
        self._is_lost = False

    # --- what a test does

    def send(self, data: bytes) -> None:
        """The client sends; nothing arrives yet."""
        self._pending += data

    def arrive(self, count: int) -> int:
        """Let up to so many bytes arrive in one piece; how many did."""
        piece = self._pending[:count] if self.takes_input and not self._is_lost else b""
        if piece:
            self._pending = self._pending[len(piece) :]
            self._protocol.data_received(piece)
        return len(piece)

    def stall(self) -> None:
        """The client reads nothing any more: what is written stays here."""
        self._is_stalled = True

    def flow(self) -> None:
        """The client reads again: everything leaves."""
        self._is_stalled = False
        self.written += self._buffer
        self._buffer = []
        self.has_shut_down = self.has_shut_down or self._wants_eof
        if self._is_over_limit:
            self._is_over_limit = False
            self._protocol.resume_writing()

    def drop(self) -> None:
        """The connection breaks."""
        if not self._is_lost:
            self._is_lost = True
            self._buffer = []
            self._protocol.connection_lost(None)

    # --- what the protocol does

    def write(self, data: bytes | bytearray | memoryview) -> None:
        """Write, or keep while stalled."""
        if self._is_lost:
            return
        assert not self._wants_eof, "written behind the end"
        (self._buffer if self._is_stalled else self.written).append(bytes(data))
        self._notice_limit()

    def _notice_limit(self) -> None:
        if not self._is_over_limit and self.get_write_buffer_size() > self._high_bytes:
            self._is_over_limit = True
            self._protocol.pause_writing()

    def get_write_buffer_size(self) -> int:
        """Bytes that have not left."""
        return sum(map(len, self._buffer))

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        """As the loop's own transports do: an empty buffer is the low mark."""
        del low
        self._high_bytes = 65536 if high is None else high
        self._notice_limit()

    def pause_reading(self) -> None:
        """Let nothing arrive."""
        assert self.takes_input, "paused twice"
        self.takes_input = False

    def resume_reading(self) -> None:
        """Let it arrive again, when the test says so."""
        assert not self.takes_input, "resumed twice"
        self.takes_input = True

    def write_eof(self) -> None:
        """Shut down writing once everything has left."""
        self._wants_eof = True
        self.has_shut_down = not self._buffer

    def is_closing(self) -> bool:
        """Whether it is over."""
        return self._is_lost

    def abort(self) -> None:
        """Lose the connection."""
        self.drop()

    def close(self) -> None:
        """Lose the connection; nobody here closes before everything has left."""
        assert not self._buffer
        self.drop()
