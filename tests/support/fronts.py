"""A real front on a real listener with a dispatcher that only remembers, and a clock set by hand.

Spec: docs/architecture.md#tests
"""

from __future__ import annotations

import contextlib
import json
import socket
import time
from collections.abc import AsyncIterator
from dataclasses import dataclass

from sessions.errors.client_visible import ClientVisibleError
from sessions.lending.connection import LAST_HEAD_S, Connection
from sessions.lending.front import Front
from sessions.lending.group import Group
from sessions.lending.place import Place
from sessions.routing.kinds import Named
from sessions.wire.head import Head
from tests.support.loops import open_descriptors, turn
from tests.support.raw import AsyncRawConnection, open_raw
from tests.support.replies import Reply
from tests.support.waiting import wait_until_async


@dataclass(frozen=True, slots=True, kw_only=True)
class TakenLoan:
    """What a fake dispatcher was asked to lend."""

    connection: Connection
    shard: int
    head: Head
    payload: bytes
    needs_descriptor: bool


class FakeDispatcher:
    """Chooses as it is told, and lends to nobody: a test gives each loan back by itself.

    Attributes:
        owner: The shard that is chosen.
        refusal: Raised by `choose` while set.
        named: What each chosen request named.
        loans: In the order of `lend`.
        released: (slot, holders) in the order of `release`.
        forgotten: Connections in the order of `forget`.
    """

    def __init__(self) -> None:
        self.owner = 0
        self.refusal: ClientVisibleError | None = None
        self.named: list[Named | None] = []
        self.loans: list[TakenLoan] = []
        self.released: list[tuple[int, list[int]]] = []
        self.forgotten: list[Connection] = []

    def choose(self, named: Named | None) -> Place:
        """See `Dispatcher.choose`."""
        self.named.append(named)
        if self.refusal is not None:
            raise self.refusal
        return Place(shard=self.owner)

    def lend(self, connection: Connection, place: Place, head: Head, payload: bytes) -> None:
        """Do what the router's dispatcher does, without a message."""
        connection.pause_reading()
        needs_descriptor = connection.slot.lend(place.shard)
        self.loans.append(
            TakenLoan(
                connection=connection,
                shard=place.shard,
                head=head,
                payload=payload,
                needs_descriptor=needs_descriptor,
            )
        )

    def release(self, slot: int, holders: list[int]) -> None:
        """Remember."""
        self.released.append((slot, holders))

    def forget(self, connection: Connection) -> None:
        """Remember."""
        self.forgotten.append(connection)


class Clock:
    """Seconds that pass only by `advance`."""

    def __init__(self) -> None:
        self.now = time.monotonic()

    def __call__(self) -> float:
        return self.now

    def advance(self, seconds: float) -> None:
        """Let time pass."""
        self.now += seconds


class FrontStage:
    """A started front and what stands around it."""

    def __init__(self, group: Group) -> None:
        self.group = group
        self.dispatcher = FakeDispatcher()
        self.clock = Clock()
        self.front = Front(group, self.dispatcher)
        self.front.now = self.clock
        self.address: tuple[str, int] = ("", 0)
        self._clients = contextlib.AsyncExitStack()

    async def start(self, listener: socket.socket) -> None:
        """Accept."""
        self.address = listener.getsockname()
        await self.front.start([listener])

    async def connect(self, receive_buffer_bytes: int = 0) -> AsyncRawConnection:
        """A new client, closed with the stage."""
        return await self._clients.enter_async_context(
            open_raw(self.address, receive_buffer_bytes=receive_buffer_bytes)
        )

    async def connection(self) -> Connection:
        """The only connection, as soon as it is there."""
        await wait_until_async(lambda: len(self.front.connections) == 1, "one connection")
        return next(iter(self.front.connections))

    async def lent(self, request: bytes) -> tuple[AsyncRawConnection, Connection]:
        """A client whose connection is lent for its first request."""
        client = await self.connect()
        await client.send(request)
        return client, (await self.loan()).connection

    async def loan(self, number: int = 0) -> TakenLoan:
        """The loan with this number, as soon as it is there."""
        await wait_until_async(lambda: len(self.dispatcher.loans) > number, f"loan {number}")
        return self.dispatcher.loans[number]

    def sweep(self) -> None:
        """What the front's timer does."""
        assert self.front._sweep is not None
        self.front._sweep.cancel()
        self.front._on_sweep()

    async def pass_time(self, seconds: float) -> None:
        """Let time pass on the front's clock, and its sweep act on it."""
        await turn()
        self.clock.advance(seconds)
        self.sweep()
        await turn()

    async def pass_last_moment(self) -> None:
        """Let the time pass in which a closing front still waits for heads."""
        await self.pass_time(LAST_HEAD_S + 0.01)

    async def wait_empty(self) -> None:
        """Wait until no connection is open here."""
        await self.wait_gone(0)

    async def wait_gone(self, left: int) -> None:
        """Wait until no more connections are open here than these."""
        await wait_until_async(
            lambda: len(self.front.connections) <= left, f"at most {left} connections"
        )

    async def stop(self) -> None:
        """Close clients, connections and listeners."""
        await self._clients.aclose()
        for connection in list(self.front.connections):
            connection.transport.abort()
        await self.wait_empty()
        await self.front.drain(lambda: 0)


def error_code_of(reply: Reply) -> str:
    """The code of a reply in the one error shape."""
    code: str = json.loads(reply.body)["error"]["code"]
    return code


@contextlib.asynccontextmanager
async def open_front(group: Group, *, send_buffer_bytes: int = 0) -> AsyncIterator[FrontStage]:
    """Start a front; fails when a descriptor is left open at the end.

    Args:
        group: Whose board is told by probes, and whose settings limit.
        send_buffer_bytes: Of the kernel, per accepted connection; 0 = the system's default.
    """
    before = open_descriptors()
    listener = socket.create_server(("127.0.0.1", 0))
    listener.setblocking(False)  # noqa: FBT003 - positional only
    if send_buffer_bytes:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, send_buffer_bytes)
    stage = FrontStage(group)
    await stage.start(listener)
    try:
        yield stage
    finally:
        await stage.stop()
        listener.close()
    await wait_until_async(lambda: open_descriptors() <= before, "all descriptors to be closed")
