"""A lone shard, or a router and its shards, on one loop of this process, with real sockets.

Everything is real but the processes: the front on a listener, `House`, or `Dispatch` and one
`Loans` per shard with a SEQPACKET channel between them. Tests of the exchange run on both, so what
holds for one holds for the other (lending rule 2).

Spec: docs/architecture.md#tests
"""

from __future__ import annotations

import asyncio
import contextlib
import socket
from collections.abc import AsyncIterator, Callable, Sequence
from typing import Any, cast

from sessions.lending.channel import Channel
from sessions.lending.front import Front
from sessions.lending.group import Group
from sessions.lending.messages import Message
from sessions.router.dispatch import Dispatch
from sessions.router.shards import ShardLink
from sessions.routing.kinds import SessionKind
from sessions.shard.channel_claims import ChannelClaims
from sessions.shard.cycle import Service
from sessions.shard.exchange import Exchange
from sessions.shard.house import House
from sessions.shard.loans import Loans
from sessions.shard.referral import BodyNames, Inquiring
from sessions.shard.referring import ReferringLoans
from sessions.shard.server import ShardServer
from tests.support.held_app import Call, HeldApp
from tests.support.loops import open_descriptors
from tests.support.raw import AsyncRawConnection, open_raw, request_bytes
from tests.support.waiting import wait_until_async

App = Callable[..., Any]


class ShardStage:
    """One shard behind the router."""

    def __init__(self, group: Group, app: App, kinds: Sequence[SessionKind] = ()) -> None:
        self.server = ShardServer(cast("Any", app))
        self.claims = ChannelClaims()
        names = BodyNames(kinds)
        served = Inquiring(cast("Any", app), self.claims.holds) if names else app
        opens = any(kind.is_opened_by_name for kind in kinds)
        self.loans = (ReferringLoans if opens else Loans)(
            service=Service(served, self.server.server_state, {}),
            cells=group.cells,
            body_limit_bytes=group.settings.body_bytes,
            body_timeout_s=group.settings.body_timeout_s,
            parked_limit=group.settings.parked_connections,
            claims=self.claims,
        )
        if isinstance(self.loans, ReferringLoans):
            self.loans.inquire(names)

    def attach(self, sock: socket.socket) -> None:
        """Speak with the router over this socket."""
        loop = asyncio.get_running_loop()
        self.channel = Channel(loop, sock, self.loans.on_message, lambda: None)
        self.loans.attach(self.channel)
        self.claims.attach(self.channel)

    @property
    def exchanges(self) -> list[Exchange]:
        """Copies of connections, lent or parked."""
        return list(self.loans._exchanges.values())

    async def stop(self) -> None:
        """Wait until every copy is dropped, then close."""
        await wait_until_async(lambda: not self.exchanges, "no copy at the shard")
        self.loans.stop()
        self.channel.close()


class Stage:
    """What a test of the exchange stands on; see the module docstring.

    Attributes:
        front: Accepts.
        shards: Those behind the router; empty for a lone shard.
        house: The lone shard; None behind a router.
        dispatch: The router's dispatcher; None in a lone shard.
    """

    def __init__(self, group: Group, apps: list[App], *, has_router: bool) -> None:
        self.group = group
        self.shards: list[ShardStage] = []
        self.house: House | None = None
        self.dispatch: Dispatch | None = None
        self.messages: list[tuple[int, Message]] = []
        self._clients = contextlib.AsyncExitStack()
        self._links: list[ShardLink] = []
        if has_router:
            self.dispatch = Dispatch(len(apps), is_leaving=lambda: group.board.draining)
            self.front = Front(group, self.dispatch)
            for index, app in enumerate(apps):
                self._add_shard(self.dispatch, index, ShardStage(group, app))
        else:
            server = ShardServer(cast("Any", apps[0]))
            self.server_state = server.server_state
            self.house = House(group)
            self.house.open(Service(apps[0], server.server_state, {}))
            self.front = Front(group, self.house)

    def _add_shard(self, dispatch: Dispatch, index: int, shard: ShardStage) -> None:
        router_side, shard_side = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        shard.attach(shard_side)
        self.shards.append(shard)

        def on_message(message: Message, _descriptor: int | None) -> None:
            self.messages.append((index, message))
            dispatch.on_message(link, message)

        channel = Channel(asyncio.get_running_loop(), router_side, on_message, lambda: None)
        link = ShardLink(index=index, pid=0, pidfd=-1, channel=channel)
        self._links.append(link)
        dispatch.add(link)

    @property
    def address(self) -> tuple[str, int]:
        """Where it listens."""
        address: tuple[str, int] = self._listener.getsockname()
        return address

    @property
    def exchanges(self) -> list[Exchange]:
        """Every exchange of every shard."""
        if self.house is not None:
            return list(self.house._exchanges.values())
        return [exchange for shard in self.shards for exchange in shard.exchanges]

    @property
    def lent_count(self) -> int:
        """Exchanges in progress."""
        if self.house is not None:
            return self.house.lent_count
        assert self.dispatch is not None
        return self.dispatch.lent_count

    async def start(self) -> None:
        """Accept."""
        self._listener = socket.create_server(("127.0.0.1", 0))
        self._listener.setblocking(False)  # noqa: FBT003 - positional only
        await self.front.start([self._listener])

    async def connect(self, receive_buffer_bytes: int = 0) -> AsyncRawConnection:
        """A new client, closed with the stage."""
        return await self._clients.enter_async_context(
            open_raw(self.address, receive_buffer_bytes=receive_buffer_bytes)
        )

    async def wait_back(self) -> None:
        """Wait until no exchange is in progress."""
        await wait_until_async(lambda: not self.lent_count, "no exchange in progress")

    async def stop(self) -> None:
        """Close clients, connections, shards and listeners."""
        await self._clients.aclose()
        for connection in list(self.front.connections):
            connection.transport.abort()
        await wait_until_async(lambda: not self.front.connections, "no connection at the front")
        await self.front.drain(lambda: 0)
        for shard in self.shards:
            await shard.stop()
        for link in self._links:
            link.channel.close()
        if self.house is not None:
            assert not self.house._exchanges
            self.house.stop()
        self._listener.close()


@contextlib.asynccontextmanager
async def open_stage(group: Group, *apps: App, has_router: bool) -> AsyncIterator[Stage]:
    """Start a stage; fails when a descriptor is left open at the end.

    Args:
        group: Settings, board and cells.
        apps: One per shard.
        has_router: Whether shards stand behind a router.
    """
    before = open_descriptors()
    stage = Stage(group, list(apps), has_router=has_router)
    await stage.start()
    try:
        yield stage
    finally:
        await stage.stop()
    await wait_until_async(lambda: open_descriptors() <= before, "all descriptors to be closed")


async def asked(
    stage: Stage, app: HeldApp, data: bytes, number: int = 0
) -> tuple[AsyncRawConnection, Call]:
    """A new client that sent this, and the call that it led to."""
    client = await stage.connect()
    await client.send(data)
    return client, await app.call(number)


async def serve_next(client: AsyncRawConnection, app: HeldApp, number: int) -> None:
    """Prove that the connection carries another exchange, the application's `number`-th."""
    await client.send(request_bytes("GET", f"/next{number}"))
    call = await app.call(number)
    assert call.scope["path"] == f"/next{number}"
    await call.reply(b"next")
    assert (await client.read_reply()).body == b"next"
    call.end()
    assert len(app.calls) == number + 1
