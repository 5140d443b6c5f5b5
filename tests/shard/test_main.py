"""The life of a shard in this process: start, serve, drain, and the end without a router."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import json
import os
import signal
import socket
import threading
from collections.abc import AsyncIterator, Iterator
from contextlib import closing
from pathlib import Path

import pytest

from sessions.lending.group import Group
from sessions.lending.messages import Keep, Kind, LendFlag, Message
from sessions.lending.unix_listener import listen_unix
from sessions.routing.kind_text import kinds_to_text
from sessions.routing.kinds import ROLLOUT
from sessions.shard import main
from sessions.shard.apps import LoadedApp, load_app
from sessions.shard.main import serve_lone_shard, serve_shard
from sessions.tools.claims import Claims
from tests.support.channels import End
from tests.support.loans_stage import Lendable
from tests.support.loops import BOTH_LOOPS, Backend
from tests.support.members import FakeLife, group_of
from tests.support.raw import open_raw, request_bytes
from tests.support.waiting import wait_until_async

APP = "tests.support.apps:cases"
GET = request_bytes("GET", "/where")
LIVE = request_bytes("GET", "/livez")
READY = request_bytes("GET", "/readyz")


@pytest.fixture(params=BOTH_LOOPS)
def anyio_backend(request: pytest.FixtureRequest) -> Backend:
    backend: Backend = request.param
    return backend


@pytest.fixture(autouse=True)
def thawed() -> Iterator[None]:
    """A shard leaves what it loaded out of collections; the next test's shard shall do so again."""
    yield
    gc.unfreeze()


# --- a lone shard


@contextlib.asynccontextmanager
async def lone_shard(
    group: Group, port: int = 0
) -> AsyncIterator[tuple[tuple[str, int], FakeLife]]:
    """A lone shard that is ready; told to stop at the end unless it was."""
    listener = socket.create_server(("127.0.0.1", port))
    listener.setblocking(False)  # noqa: FBT003 - positional only
    address = listener.getsockname()
    life = FakeLife(group, 1, os.getpid())
    serving = asyncio.create_task(serve_lone_shard(group, [listener], life))
    await wait_until_async(lambda: life.is_ready or serving.done(), "the shard to be ready")
    yield address, life
    life.stop_requested.set()
    await serving
    listener.close()


async def test_a_lone_shard_serves_until_it_is_told_to_stop(tmp_path: Path) -> None:
    group = group_of(tmp_path, app=APP)
    async with lone_shard(group) as (address, life):
        async with open_raw(address) as client:
            assert (await client.ask(GET)).status == 200
            assert life.is_idle is not None
            assert life.is_idle()
        ready = json.loads(group.ready_path.read_text())
        assert ready["address"] == f"127.0.0.1:{address[1]}"
        assert ready["pids"]["shard 0"] == os.getpid()
        assert not life.is_drained
    assert life.is_drained
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection(address).close()


async def test_a_lone_shard_publishes_its_counters(tmp_path: Path) -> None:
    group = group_of(tmp_path, app=APP)
    async with lone_shard(group) as (address, life), open_raw(address) as client:
        await client.ask(GET)
        await wait_until_async(lambda: life.beats[-1:] == [(0, 1)], "a beat with the request")
        reply = await client.ask(request_bytes("GET", "/healthz"))
        assert json.loads(reply.body)["shards"][0]["requests"] == 1


async def test_a_lone_shard_finishes_what_is_in_flight(tmp_path: Path) -> None:
    group = group_of(tmp_path, app=APP)
    async with lone_shard(group) as (address, life), open_raw(address) as client:
        await client.send(request_bytes("GET", "/echo?sleep=0.2&out=3"))
        assert life.is_idle is not None
        await wait_until_async(lambda: not life.is_idle(), "the exchange")  # type: ignore[misc]
        life.stop_requested.set()
        assert (await client.read_reply()).body_bytes == 3
        assert await client.read_to_end() == b""
    assert life.is_drained


async def test_a_lone_shard_answers_503_while_its_application_loads(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    gate = threading.Event()
    real = load_app

    def load_slowly(group: Group, index: int, claims: Claims | None = None) -> LoadedApp:
        gate.wait(20)
        return real(group, index)

    monkeypatch.setattr(main, "load_app", load_slowly)
    group = group_of(tmp_path, app=APP)
    asking = asyncio.Event()

    async def ask(address: tuple[str, int]) -> list[int]:
        await asking.wait()
        async with open_raw(address) as client:
            found = [(await client.ask(request)).status for request in (GET, LIVE, READY)]
            gate.set()
            return found

    with socket.create_server(("127.0.0.1", 0)) as probe:
        port = probe.getsockname()[1]
    asked = asyncio.create_task(ask(("127.0.0.1", port)))
    asyncio.get_running_loop().call_later(0.05, asking.set)
    async with lone_shard(group, port) as (address, _life):
        assert await asked == [503, 200, 503]
        async with open_raw(address) as client:
            assert [(await client.ask(r)).status for r in (GET, LIVE, READY)] == [200, 200, 200]


# --- a shard behind a router


class RouterEnd:
    """The router's side, in the hands of the test."""

    def __init__(self, group: Group) -> None:
        self.group = group
        self.life = FakeLife(group, 2, os.getpid())
        self.listener = listen_unix(group.channel_path, socket.SOCK_SEQPACKET)

    async def accept(self) -> End:
        """The shard's channel, as soon as it has connected."""
        loop = asyncio.get_running_loop()
        sock, _ = await loop.sock_accept(self.listener)
        return End(sock)


@pytest.fixture
async def router(tmp_path: Path) -> AsyncIterator[RouterEnd]:
    group = group_of(tmp_path, shards=2, app=APP)
    made = RouterEnd(group)
    yield made
    made.listener.close()


async def test_a_shard_says_hello_when_it_can_serve(router: RouterEnd) -> None:
    serving = asyncio.create_task(serve_shard(router.group, 1, router.life))
    end = await router.accept()
    await wait_until_async(lambda: bool(end.messages), "the hello")
    assert end.messages == [Message(Kind.HELLO, 0, 1, 0, 0, kinds_to_text((ROLLOUT,)))]
    assert router.life.is_ready
    async with open_raw(str(router.group.shard_socket_path(1))) as operator:
        assert (await operator.ask(GET)).status == 200
    router.group.board.set_draining()
    end.close()
    await serving
    assert router.life.is_drained


class WatchedLife(FakeLife):
    """Notes how often it had beaten when it was ready."""

    beats_before: int = 0

    def on_ready(self) -> None:
        self.beats_before = len(self.beats)
        super().on_ready()


async def test_a_shard_has_beaten_when_it_is_ready(router: RouterEnd) -> None:
    """Else a probe that comes at once finds a shard whose loop does not beat."""
    life = WatchedLife(router.group, 2, os.getpid())
    serving = asyncio.create_task(serve_shard(router.group, 1, life))
    end = await router.accept()
    await wait_until_async(lambda: life.is_ready, "the shard to be ready")
    assert life.beats_before == 1
    router.group.board.set_draining()
    end.close()
    await serving


async def test_what_was_loaded_is_left_out_of_collections(
    router: RouterEnd, tmp_path: Path
) -> None:
    counts = []
    (tmp_path / "lone").mkdir()
    async with lone_shard(group_of(tmp_path / "lone", app=APP)):
        counts.append(gc.get_freeze_count())
    gc.unfreeze()
    serving = asyncio.create_task(serve_shard(router.group, 1, router.life))
    end = await router.accept()
    await wait_until_async(lambda: bool(end.messages), "the hello")
    counts.append(gc.get_freeze_count())
    router.group.board.set_draining()
    end.close()
    await serving
    assert min(counts) > 0


async def test_a_shard_serves_what_is_lent_and_ends_with_its_channel(router: RouterEnd) -> None:
    serving = asyncio.create_task(serve_shard(router.group, 1, router.life))
    end = await router.accept()
    connection = Lendable(0)
    end.channel.send(
        Message(Kind.LEND, LendFlag.DESCRIPTOR, 3, len(GET), 1, GET),
        connection.router_side.fileno(),
    )
    assert (await connection.client.read_reply()).body == str(os.getpid()).encode()
    await wait_until_async(lambda: len(end.messages) == 2, "the back")
    assert end.messages[1] == Message(Kind.BACK, Keep.KEPT, 3, 0, 1, b"")
    end.channel.send(Message(Kind.RELEASE, 0, 3, 0, 0, b""))
    router.group.board.set_draining()
    end.close()
    await serving
    connection.close()
    assert router.life.is_drained


async def test_a_shard_waits_for_a_router_that_comes_late(tmp_path: Path) -> None:
    group = group_of(tmp_path, shards=2, app=APP)
    life = FakeLife(group, 2, os.getpid())
    serving = asyncio.create_task(serve_shard(group, 1, life))
    await wait_until_async(group.shard_socket_path(1).exists, "the shard's own socket")
    assert not life.is_ready
    router = RouterEnd(group)
    end = await router.accept()
    await wait_until_async(lambda: bool(end.messages), "the hello")
    group.board.set_draining()
    end.close()
    await serving
    router.listener.close()


@pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning")
def test_a_shard_does_not_outlive_its_router(tmp_path: Path) -> None:
    """In a process of its own, which it ends at once."""
    group = group_of(tmp_path, shards=2, app=APP)
    with closing(listen_unix(group.channel_path, socket.SOCK_SEQPACKET)) as listener:
        pid = os.fork()
        if pid == 0:
            signal.alarm(20)
            with contextlib.suppress(BaseException):
                asyncio.run(_serve_one(group))
            os._exit(1)
        listener.settimeout(20)
        sock, _ = listener.accept()
        with closing(sock):
            sock.settimeout(20)
            assert sock.recv(100)[0] == Kind.HELLO
    _, status = os.waitpid(pid, 0)
    assert os.waitstatus_to_exitcode(status) == 70


async def _serve_one(group: Group) -> None:
    await serve_shard(group, 1, FakeLife(group, 2))
