"""The life of a shard: start the application, serve loans, end.

`serve_shard` is for a shard behind a router: it serves what the router lends and ends when the
router closes the channel. `serve_lone_shard` owns the public listener itself. Both beat once a
second and publish how many sessions are open.

Spec: docs/architecture.md#shard
"""

from __future__ import annotations

import asyncio
import logging
import os
import socket
from typing import Final

from starlette.types import ASGIApp

from sessions.lending.channel import Channel
from sessions.lending.front import Front
from sessions.lending.group import Group, Life
from sessions.lending.messages import Kind, Message
from sessions.lending.ready import write_ready
from sessions.lending.waiting import wait_set, wait_until
from sessions.routing.kind_text import kinds_to_text
from sessions.shard.apps import LoadedApp, load_app
from sessions.shard.beat import Beat
from sessions.shard.channel_claims import ChannelClaims
from sessions.shard.collector import set_loaded_aside
from sessions.shard.cycle import Service
from sessions.shard.farewell import Farewell
from sessions.shard.house import House
from sessions.shard.loans import Loans
from sessions.shard.probed import Probed
from sessions.shard.referral import BodyNames, Inquiring
from sessions.shard.referring import ReferringLoans
from sessions.shard.refusal import Guarded
from sessions.shard.server import ShardServer

logger = logging.getLogger(__name__)

_DIED: Final = 70


async def serve_shard(group: Group, index: int, life: Life) -> None:
    """Serve the loans of the router until it ends the channel.

    Args:
        group: The shared state.
        index: Of this shard.
        life: The worker process.

    Raises:
        SettingsError: The application cannot be made of the settings.
        SystemExit: The application's lifespan failed.
        LifespanEndedError: It ended while the shard was serving.
    """
    loop = asyncio.get_running_loop()
    claims = ChannelClaims()
    loaded = load_app(group, index, claims)
    _publish_policy(loaded, group)
    server = ShardServer(shard_app(loaded, group))
    await server.start(group.shard_socket_path(index))
    loans = _make_loans(loaded, server, group, claims)
    has_ended = asyncio.Event()
    channel = Channel(loop, await _connect(group), loans.on_message, has_ended.set)
    loans.attach(channel)
    life.watch_idle(lambda: not loans.lent_count)
    farewell = Farewell(group.settings, life, loans)
    beat = Beat(group, index, life, loaded, server)
    beat.publish()  # first: who is ready and never beat is stale
    set_loaded_aside()
    life.on_ready()
    hello = Message(Kind.HELLO, 0, index, 0, 0, kinds_to_text(loaded.kinds))
    channel.send(hello)  # last: the router is ready by it
    claims.attach(channel)
    beats = asyncio.create_task(beat.run())
    await server.outlive(has_ended.wait())
    if not group.board.draining:
        # The router is gone and nobody will lend again: a shard must not outlive it.
        logger.error("the channel to the router ended shard=%d", index)
        logging.shutdown()
        os._exit(_DIED)
    beats.cancel()
    await loaded.sweep()
    farewell.end()
    loans.stop()
    channel.close()
    await server.stop()
    life.on_drained()


async def serve_lone_shard(group: Group, listeners: list[socket.socket], life: Life) -> None:
    """Serve the public listener without a router until told to stop.

    Args:
        group: The shared state.
        listeners: Bound and listening; they are closed when draining begins.
        life: The worker process.

    Raises:
        SettingsError: The application cannot be made of the settings.
        SystemExit: The application's lifespan failed.
        LifespanEndedError: It ended while the shard was serving.
    """
    house = House(group)
    front = Front(group, house)
    life.watch_idle(lambda: not house.lent_count)
    await front.start(listeners)
    # In a thread, so that clients are told meanwhile that the server is starting.
    loaded = await asyncio.to_thread(load_app, group, 0)
    _publish_policy(loaded, group)
    front.kinds = loaded.kinds
    server = ShardServer(shard_app(loaded, group))
    await server.start(group.shard_socket_path(0))
    house.open(Service(loaded.asgi, server.server_state, server.app_state))
    farewell = Farewell(group.settings, life, house)
    beat = Beat(group, 0, life, loaded, server)
    beat.publish()  # first: who is ready and never beat is stale
    set_loaded_aside()
    life.on_ready()
    write_ready(group, listeners)
    beats = asyncio.create_task(beat.run())
    await server.outlive(life.stop_requested.wait())
    await wait_set(life.hurry_requested, group.settings.drain_delay_s)
    house.close()
    await front.drain(lambda: house.lent_count)
    beats.cancel()
    await loaded.sweep()
    farewell.end()
    house.stop()
    await server.stop()
    life.on_drained()


def shard_app(loaded: LoadedApp, group: Group) -> ASGIApp:
    """What the shard socket serves: the application, and what exchanges and front do elsewhere."""
    return Probed(Guarded(loaded.asgi), group)


def _make_loans(
    loaded: LoadedApp, server: ShardServer, group: Group, claims: ChannelClaims
) -> Loans:
    """Loans that can hand requests back, if sessions are opened by name; else the plain ones."""
    names = BodyNames(loaded.kinds)
    app = Inquiring(loaded.asgi, claims.holds) if names else loaded.asgi
    opens = any(kind.is_opened_by_name for kind in loaded.kinds)
    loans = (ReferringLoans if opens else Loans)(
        service=Service(app, server.server_state, server.app_state),
        cells=group.cells,
        body_limit_bytes=group.settings.body_bytes,
        body_timeout_s=group.settings.body_timeout_s,
        parked_limit=group.settings.parked_connections,
        claims=claims,
    )
    if isinstance(loans, ReferringLoans):
        loans.inquire(names)
    return loans


def _publish_policy(loaded: LoadedApp, group: Group) -> None:
    """Let the chassis know what a death means, before one can be survived."""
    if loaded.goes_on:
        group.board.set_goes_on()


async def _connect(group: Group) -> socket.socket:
    """Connect to the router's channel listener as soon as it is there."""
    loop = asyncio.get_running_loop()
    await wait_until(group.channel_path.exists)  # the boot deadline ends this
    sock = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    sock.settimeout(0)
    await loop.sock_connect(sock, str(group.channel_path))
    return sock
