"""The shard's uvicorn server: its lifespan, its private socket, and the signals it leaves alone."""

from __future__ import annotations

import asyncio
import os
import signal
import stat
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, cast

import pytest

from sessions.errors.unseen import LifespanEndedError
from sessions.shard.server import ShardServer
from tests.support.apps import App, Message, Receive, Send, cases
from tests.support.loops import turn
from tests.support.raw import open_raw, request_bytes


@asynccontextmanager
async def started(app: App, path: Path) -> AsyncIterator[ShardServer]:
    server = ShardServer(cast("Any", app))
    await server.start(path)
    try:
        yield server
    finally:
        await server.stop()


class Living:
    """An application that notes its lifespan, and leaves something for its requests."""

    def __init__(self) -> None:
        self.events: list[str] = []
        self.states: list[object] = []

    async def __call__(self, scope: Message, receive: Receive, send: Send) -> None:
        if scope["type"] != "lifespan":
            self.states.append(scope["state"].get("made"))
            await cases()(scope, receive, send)
            return
        scope["state"]["made"] = "at start"
        while True:
            event = (await receive())["type"]
            self.events.append(event)
            await send({"type": f"{event}.complete"})
            if event == "lifespan.shutdown":
                return


async def test_it_is_started_when_its_socket_serves(tmp_path: Path) -> None:
    app = Living()
    async with started(app, tmp_path / "s") as server:
        assert app.events == ["lifespan.startup"]
        assert server.app_state == {"made": "at start"}
        async with open_raw(str(tmp_path / "s")) as client:
            reply = await client.ask(request_bytes("GET", "/where"))
        assert (reply.status, reply.body) == (200, str(os.getpid()).encode())
        assert app.states == ["at start"]
        assert server.server_state.total_requests == 1
    assert app.events == ["lifespan.startup", "lifespan.shutdown"]


async def test_its_replies_name_the_server_once(tmp_path: Path) -> None:
    async with started(cases(), tmp_path / "s"), open_raw(str(tmp_path / "s")) as client:
        reply = await client.ask(request_bytes("GET", "/where"))
    assert [name for name, _ in reply.headers][:2] == ["date", "server"]
    assert reply.header("server") == "sessile"


async def test_its_socket_is_private(tmp_path: Path) -> None:
    async with started(cases(), tmp_path / "s"):
        assert stat.S_IMODE((tmp_path / "s").stat().st_mode) == 0o600


async def test_it_leaves_the_signals_of_the_process_alone(tmp_path: Path) -> None:
    before = [signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)]
    async with started(cases(), tmp_path / "s"):
        assert [signal.getsignal(n) for n in (signal.SIGINT, signal.SIGTERM)] == before


async def test_it_serves_its_socket_only_after_the_application_has_started(tmp_path: Path) -> None:
    gate = asyncio.Event()

    async def slow(scope: Message, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan":
            await gate.wait()
        await cases()(scope, receive, send)

    server = ShardServer(cast("Any", slow))
    starting = asyncio.create_task(server.start(tmp_path / "s"))
    await turn(20)
    async with open_raw(str(tmp_path / "s")) as client:
        await client.send(request_bytes("GET", "/where"))
        await turn(20)
        assert not starting.done()
        gate.set()
        await starting
        assert (await client.read_reply()).status == 200
    await server.stop()


class Mortal(Living):
    """An application whose lifespan ends when it is told to."""

    def __init__(self) -> None:
        super().__init__()
        self.end = asyncio.Event()

    async def __call__(self, scope: Message, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan":
            await receive()
            await send({"type": "lifespan.startup.complete"})
            await self.end.wait()
            raise GeneratorExit


async def test_it_falls_with_an_application_whose_lifespan_ends(tmp_path: Path) -> None:
    app, stop = Mortal(), asyncio.Event()
    async with started(app, tmp_path / "s") as server:
        living = asyncio.create_task(server.outlive(stop.wait()))
        await turn(20)
        assert not living.done()
        app.end.set()
        with pytest.raises(LifespanEndedError, match="while it was serving"):
            await living


@pytest.mark.parametrize("make", [Living, cases])
async def test_it_waits_on_with_a_living_application_or_one_without_a_lifespan(
    make: Callable[[], App], tmp_path: Path
) -> None:
    async def without(scope: Message, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan":
            raise NotImplementedError
        await cases()(scope, receive, send)

    app = without if make is cases else make()
    stop = asyncio.Event()
    async with started(app, tmp_path / "s") as server:
        living = asyncio.create_task(server.outlive(stop.wait()))
        await turn(20)
        assert not living.done()
        stop.set()
        await living


async def test_stopping_before_the_start_is_no_error() -> None:
    await ShardServer(cast("Any", cases())).stop()


@pytest.mark.parametrize("name", ["limit_concurrency", "ws_protocol_class"])
async def test_what_would_disturb_lent_connections_is_off(name: str) -> None:
    config = ShardServer(cast("Any", cases())).config
    assert getattr(config, name) is None
    assert not config.proxy_headers
    assert not config.server_header
