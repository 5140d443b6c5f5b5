"""A scripted engine on a loopback port: answers with raw bytes, then does what it is told.

Spec: docs/architecture.md#tests
"""

from __future__ import annotations

import asyncio
import enum
import socket
import ssl
import struct
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Final

OK: Final = b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok"
_RESET: Final = struct.pack("ii", 1, 0)  # SO_LINGER: on, for no time


class Then(enum.Enum):
    """What an engine does after the bytes of an answer."""

    SERVE = enum.auto()  # read the next request
    CLOSE = enum.auto()
    RESET = enum.auto()
    STALL = enum.auto()  # nothing, until the client closes


@dataclass(frozen=True, slots=True)
class Answer:
    """One answer."""

    data: bytes = OK
    then: Then = Then.SERVE


@dataclass(frozen=True, slots=True)
class Asked:
    """One request that an engine got.

    Attributes:
        lines: Request line and headers.
        body: The body.
        connection: On which connection, from 0.
    """

    lines: tuple[bytes, ...]
    body: bytes
    connection: int

    @property
    def target(self) -> str:
        """The request's target."""
        return self.lines[0].split(b" ")[1].decode()


@dataclass
class RawEngine:
    """See the module docstring.

    Attributes:
        answer_of: What it answers; asked once per request.
        asked: The requests, oldest first.
        connections: How many were accepted.
        open_count: How many of them have not ended.
        port: Where it listens.
    """

    answer_of: Callable[[Asked], Answer]
    asked: list[Asked] = field(default_factory=list)
    connections: int = 0
    open_count: int = 0
    port: int = 0
    # Waits for it before it answers; open unless a test clears it.
    gate: asyncio.Event = field(default_factory=asyncio.Event)
    _writers: set[asyncio.StreamWriter] = field(default_factory=set)

    def __post_init__(self) -> None:
        """Begin with the gate open."""
        self.gate.set()

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """One connection, to its end."""
        number = self.connections
        self.connections += 1
        self.open_count += 1
        self._writers.add(writer)
        try:
            while await self._exchange(number, reader, writer):
                pass
        except (asyncio.IncompleteReadError, ConnectionError):
            pass
        finally:
            self.open_count -= 1
            self._writers.discard(writer)
            writer.transport.abort()

    def end_connections(self, *, reset: bool = False) -> None:
        """End all connections now."""
        for writer in list(self._writers):
            if reset:
                _make_reset(writer)
            writer.transport.abort()

    async def _exchange(
        self, number: int, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> bool:
        head = await reader.readuntil(b"\r\n\r\n")
        lines = tuple(head.removesuffix(b"\r\n\r\n").split(b"\r\n"))
        named = dict(line.lower().split(b": ", 1) for line in lines[1:])
        body = await reader.readexactly(int(named.get(b"content-length", 0)))
        asked = Asked(lines, body, number)
        self.asked.append(asked)
        await self.gate.wait()
        answer = self.answer_of(asked)
        if answer.data:
            writer.write(answer.data)
            await writer.drain()
        if answer.then is Then.STALL:
            await reader.read()
        elif answer.then is Then.RESET:
            _make_reset(writer)
        elif answer.then is Then.CLOSE:
            writer.close()
            await writer.wait_closed()
        return answer.then is Then.SERVE


def answers_in_order(*answers: Answer | bytes) -> Callable[[Asked], Answer]:
    """Answers one after the other, the last one for ever."""
    left = [answer if isinstance(answer, Answer) else Answer(answer) for answer in answers]
    return lambda _: left.pop(0) if len(left) > 1 else left[0]


@asynccontextmanager
async def raw_engine(
    answer_of: Callable[[Asked], Answer],
    *,
    tls: ssl.SSLContext | None = None,
    host: str = "127.0.0.1",
) -> AsyncIterator[RawEngine]:
    """Run an engine; its connections end with it."""
    engine = RawEngine(answer_of)
    async with await asyncio.start_server(engine.serve, host, 0, ssl=tls, backlog=1024) as server:
        engine.port = server.sockets[0].getsockname()[1]
        yield engine
        engine.gate.set()
        engine.end_connections()


def _make_reset(writer: asyncio.StreamWriter) -> None:
    found: socket.socket = writer.get_extra_info("socket")
    found.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET)
