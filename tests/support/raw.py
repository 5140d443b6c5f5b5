"""Raw HTTP/1.1 connections for tests: exact bytes out, strictly parsed replies in.

`RawConnection` blocks with a time-out, `AsyncRawConnection` awaits; both drive the one parser in
`tests.support.replies`. They can do what no client library does: pipeline, send byte by byte,
half-close, reset, read slowly.

Spec: docs/architecture.md#tests
"""

from __future__ import annotations

import asyncio
import contextlib
import socket
import struct
from collections.abc import AsyncIterator, Iterable, Sequence
from typing import Final, Self

from tests.support.replies import Reply, ReplyParser

Address = tuple[str, int] | str  # host and port, or the path of a Unix socket
TIMEOUT_S: Final = 20.0
_RECV_BYTES: Final = 262144
_RESET: Final = struct.pack("ii", 1, 0)  # SO_LINGER on, 0 s: close sends a reset


def request_bytes(
    method: str,
    target: str,
    headers: Sequence[tuple[str, str]] = (),
    body: bytes = b"",
    *,
    chunk_bytes: int = 0,
    host: str = "test",
    version: str = "1.1",
) -> bytes:
    """A whole request with its framing.

    Args:
        method: As it stands on the request line.
        target: Likewise.
        headers: (name, value) after `Host`, as they shall be sent.
        body: With a body or a POST a Content-Length is added, unless chunked.
        chunk_bytes: Send the body chunked in chunks of at most this size; 0 does not.
        host: Value of `Host`; empty sends none.
        version: "1.1" or "1.0".
    """
    lines = [f"{method} {target} HTTP/{version}"]
    lines += [f"Host: {host}"] if host else []
    lines += [f"{name}: {value}" for name, value in headers]
    if chunk_bytes:
        lines.append("Transfer-Encoding: chunked")
    elif body or method in {"POST", "PUT", "PATCH"}:
        lines.append(f"Content-Length: {len(body)}")
    head = "\r\n".join([*lines, "", ""]).encode("latin-1")
    return head + (chunked(body, chunk_bytes) if chunk_bytes else body)


def chunked(body: bytes, chunk_bytes: int) -> bytes:
    """A body in chunked coding, its end included."""
    pieces = [body[at : at + chunk_bytes] for at in range(0, len(body), chunk_bytes)]
    return b"".join(b"%x\r\n%b\r\n" % (len(piece), piece) for piece in pieces) + b"0\r\n\r\n"


def _pieces(data: bytes, piece_bytes: int) -> Iterable[bytes]:
    step = piece_bytes or max(len(data), 1)
    return (data[at : at + step] for at in range(0, len(data), step))


def _new_socket(address: Address, receive_buffer_bytes: int) -> socket.socket:
    family = socket.AF_UNIX if isinstance(address, str) else socket.AF_INET
    made = socket.socket(family, socket.SOCK_STREAM)
    if receive_buffer_bytes:  # before connect, so that the window is small from the start
        made.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_buffer_bytes)
    return made


def _no_delay(connected: socket.socket) -> None:
    if connected.family == socket.AF_INET:
        connected.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)


class _Connection:
    """What both drivers share: the socket, the parser, and ways to end."""

    def __init__(self, made: socket.socket) -> None:
        self.socket = made
        self.parser = ReplyParser()

    def half_close(self) -> None:
        """End the sending side; replies can still be read."""
        self.socket.shutdown(socket.SHUT_WR)

    def reset(self) -> None:
        """End the connection with a reset."""
        self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET)
        self.socket.close()

    def close(self) -> None:
        """End the connection; may be called again."""
        self.socket.close()


class RawConnection(_Connection):
    """A blocking connection; every wait ends with TimeoutError after `timeout_s`."""

    def __init__(
        self,
        address: Address,
        *,
        timeout_s: float = TIMEOUT_S,
        receive_buffer_bytes: int = 0,
    ) -> None:
        """Connect.

        Raises:
            OSError: Nobody listens there.
        """
        super().__init__(_new_socket(address, receive_buffer_bytes))
        self.socket.settimeout(timeout_s)
        try:
            self.socket.connect(address)
        except BaseException:
            self.close()
            raise
        _no_delay(self.socket)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def send(self, data: bytes, *, piece_bytes: int = 0) -> None:
        """Send exact bytes, in pieces of this size each with a write of its own; 0 = one."""
        for piece in _pieces(data, piece_bytes):
            self.socket.sendall(piece)

    def read_reply(self, *, head_only: bool = False, keep_body: bool = True) -> Reply:
        """Read one final reply; see `ReplyParser.next_reply`.

        Raises:
            ReplyError: What came is not one, or the connection ended.
            TimeoutError: It did not come.
            ConnectionResetError: The server reset the connection.
        """
        while (reply := self.parser.next_reply(head_only=head_only, keep_body=keep_body)) is None:
            self.parser.feed(self.socket.recv(_RECV_BYTES))
        return reply

    def ask(self, data: bytes, *, head_only: bool = False) -> Reply:
        """`send`, then `read_reply`."""
        self.send(data)
        return self.read_reply(head_only=head_only)

    def read_to_end(self) -> bytes:
        """Read until the server ends the connection.

        Returns:
            What came after the last reply that was read.

        Raises:
            TimeoutError: It did not end it.
            ConnectionResetError: It ended it with a reset.
        """
        while not self.parser.ended:
            self.parser.feed(self.socket.recv(_RECV_BYTES))
        return self.parser.leftover


class AsyncRawConnection(_Connection):
    """The same on the running loop; made by `open_raw`."""

    timeout_s: float = TIMEOUT_S

    async def send(self, data: bytes, *, piece_bytes: int = 0) -> None:
        """See `RawConnection.send`."""
        loop = asyncio.get_running_loop()
        async with asyncio.timeout(self.timeout_s):
            for piece in _pieces(data, piece_bytes):
                await loop.sock_sendall(self.socket, piece)

    async def read_reply(self, *, head_only: bool = False, keep_body: bool = True) -> Reply:
        """See `RawConnection.read_reply`."""
        while (reply := self.parser.next_reply(head_only=head_only, keep_body=keep_body)) is None:
            await self._read()
        return reply

    async def ask(self, data: bytes, *, head_only: bool = False) -> Reply:
        """See `RawConnection.ask`."""
        await self.send(data)
        return await self.read_reply(head_only=head_only)

    async def read_to_end(self) -> bytes:
        """See `RawConnection.read_to_end`."""
        while not self.parser.ended:
            await self._read()
        return self.parser.leftover

    async def _read(self) -> None:
        loop = asyncio.get_running_loop()
        async with asyncio.timeout(self.timeout_s):
            self.parser.feed(await loop.sock_recv(self.socket, _RECV_BYTES))


@contextlib.asynccontextmanager
async def open_raw(
    address: Address, *, timeout_s: float = TIMEOUT_S, receive_buffer_bytes: int = 0
) -> AsyncIterator[AsyncRawConnection]:
    """Connect, and close at the end.

    Raises:
        OSError: Nobody listens there.
        TimeoutError: It took too long.
    """
    connection = AsyncRawConnection(_new_socket(address, receive_buffer_bytes))
    connection.timeout_s = timeout_s
    connection.socket.settimeout(0)
    try:
        async with asyncio.timeout(timeout_s):
            await asyncio.get_running_loop().sock_connect(connection.socket, address)
        _no_delay(connection.socket)
        yield connection
    finally:
        connection.close()
