"""A shard's `Loans` with the router's end of its channel in the hands of a test.

The client connection is a real TCP pair; the test holds the client and the router's descriptor, as
the router would, and speaks with the shard by messages over a real SEQPACKET pair.

Spec: docs/architecture.md#tests
"""

from __future__ import annotations

import contextlib
import socket
from collections.abc import AsyncIterator, Sequence

from sessions.lending.group import Group
from sessions.lending.messages import Keep, Kind, LendFlag, Message
from sessions.routing.kinds import SessionKind
from tests.support.channels import End
from tests.support.held_app import HeldApp
from tests.support.loops import open_descriptors
from tests.support.raw import AsyncRawConnection, request_bytes
from tests.support.stages import App, ShardStage
from tests.support.waiting import wait_until_async

SLOT = 3
_GET = request_bytes("GET", "/one")


class Lendable:
    """One client connection: the client's side, and the router's descriptor of the server's."""

    def __init__(self, receive_buffer_bytes: int) -> None:
        sock = socket.socket()
        if receive_buffer_bytes:
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_buffer_bytes)
        with socket.create_server(("127.0.0.1", 0)) as listener:
            sock.connect(listener.getsockname())
            self.router_side, _ = listener.accept()
        sock.settimeout(0)
        self.router_side.settimeout(0)
        self.client = AsyncRawConnection(sock)

    def read_router_side(self) -> bytes:
        """What a router would read now; empty when nothing waits."""
        with contextlib.suppress(BlockingIOError):
            return self.router_side.recv(65536)
        return b""

    def close(self) -> None:
        """Close both sides."""
        self.client.close()
        self.router_side.close()


class LoansStage:
    """A shard and the test that plays its router."""

    def __init__(self, group: Group, app: App, kinds: Sequence[SessionKind] = ()) -> None:
        router_side, shard_side = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self.shard = ShardStage(group, app, kinds)
        self.shard.attach(shard_side)
        self.loans = self.shard.loans
        self.router = End(router_side)
        self._lendables: list[Lendable] = []

    def connection(self, receive_buffer_bytes: int = 0) -> Lendable:
        """A new client connection, closed with the stage."""
        made = Lendable(receive_buffer_bytes)
        self._lendables.append(made)
        return made

    def lend(
        self,
        data: bytes,
        generation: int,
        *,
        of: Lendable | None = None,
        flags: int | None = None,
        slot: int = SLOT,
        head_bytes: int | None = None,
    ) -> None:
        """Send a LEND, with the descriptor when a connection is given."""
        if flags is None:
            flags = LendFlag.DESCRIPTOR if of is not None else 0
        if head_bytes is None:
            head_bytes = data.index(b"\r\n\r\n") + 4
        message = Message(Kind.LEND, flags, slot, head_bytes, generation, data)
        self.router.channel.send(message, None if of is None else of.router_side.fileno())

    def release(self, slot: int = SLOT) -> None:
        """Send a RELEASE."""
        self.router.channel.send(Message(Kind.RELEASE, 0, slot, 0, 0, b""))

    async def answer(self, number: int = 0) -> Message:
        """The message of the shard with this number, as soon as it is there."""
        await wait_until_async(lambda: len(self.router.messages) > number, f"message {number}")
        return self.router.messages[number]

    async def stop(self) -> None:
        """Close everything."""
        for slot in list(self.loans._exchanges):
            self.release(slot)
        for lendable in self._lendables:
            lendable.close()
        await self.shard.stop()
        self.router.close()


@contextlib.asynccontextmanager
async def open_loans(
    group: Group, app: App, kinds: Sequence[SessionKind] = ()
) -> AsyncIterator[LoansStage]:
    """Start a stage; fails when a descriptor is left open at the end."""
    before = open_descriptors()
    stage = LoansStage(group, app, kinds)
    try:
        yield stage
    finally:
        await stage.stop()
    await wait_until_async(lambda: open_descriptors() <= before, "all descriptors to be closed")


def back(
    generation: int, leftover: bytes = b"", *, keep: Keep = Keep.KEPT, slot: int = SLOT
) -> Message:
    """What a shard says when an exchange is over."""
    return Message(Kind.BACK, keep, slot, 0, generation, leftover)


async def serve(
    stage: LoansStage, app: HeldApp, connection: Lendable, number: int, *, lends_copy: bool
) -> None:
    """One whole exchange, from LEND to BACK."""
    stage.lend(_GET, number + 1, of=connection if lends_copy else None)
    call = await app.call(number)
    await call.reply(b"%d" % number)
    assert (await connection.client.read_reply()).body == b"%d" % number
    assert await stage.answer(number) == back(number + 1)
    call.end()
