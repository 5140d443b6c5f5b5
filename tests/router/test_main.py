"""The life of a router in this process, with the test as its shards: start, serve, die, drain."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import signal
import socket
import subprocess
import sys
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from sessions.lending.cells import CellState
from sessions.lending.group import Group
from sessions.lending.messages import Keep, Kind, LendFlag, Message
from sessions.router.main import serve_router
from sessions.routing.ids import mint_session_id
from sessions.settings import ExitPolicy
from tests.support.channels import End
from tests.support.fronts import error_code_of
from tests.support.loops import BOTH_LOOPS, Backend, open_descriptors, turn
from tests.support.members import BootFailedError, FakeLife, group_of
from tests.support.raw import AsyncRawConnection, open_raw, request_bytes
from tests.support.waiting import wait_until_async

SHARDS = 2
GET = request_bytes("GET", "/one")
READY = request_bytes("GET", "/readyz")
REPLY = b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok"
# A process that says HELLO as shard argv[2] on the channel argv[1], and then sleeps.
SHARD_PROCESS = """
import socket, struct, sys, time
sock = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
sock.connect(sys.argv[1])
sock.send(struct.pack("<BBxxIIxxxxQ", 1, 0, int(sys.argv[2]), 0, 0))
time.sleep(60)
"""


@pytest.fixture(params=BOTH_LOOPS)
def anyio_backend(request: pytest.FixtureRequest) -> Backend:
    backend: Backend = request.param
    return backend


class Shard:
    """A shard in the hands of the test: it takes loans and gives them back."""

    def __init__(self, group: Group, index: int) -> None:
        sock = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        sock.connect(str(group.channel_path))
        self.end = End(sock)
        self._returned: set[int] = set()
        self.end.channel.send(Message(Kind.HELLO, 0, index, 0, 0, b""))

    async def loan(self, number: int = 0) -> tuple[Message, int | None]:
        """The LEND with this number, and its descriptor."""
        await wait_until_async(lambda: len(self.end.messages) > number, f"loan {number}")
        return self.end.messages[number], self.end.descriptors[number]

    def give_back(self, loan: Message, keep: Keep = Keep.KEPT) -> None:
        """Say that the exchange is over."""
        self._returned.add(id(loan))
        self.end.channel.send(Message(Kind.BACK, keep, loan.slot, 0, loan.generation, b""))

    def give_all_back(self) -> None:
        """Say that every exchange is over, and its connection, too."""
        for message in self.end.messages:
            if message.kind == Kind.LEND and id(message) not in self._returned:
                self.give_back(message, Keep.LOST)


class RouterStage:
    """A router that serves in this process."""

    def __init__(self, group: Group) -> None:
        self.group = group
        self.life = FakeLife(group, 0, os.getpid())
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.listener.setblocking(False)  # noqa: FBT003 - positional only
        self.serving = asyncio.create_task(serve_router(group, [self.listener], self.life))
        self.opened = contextlib.AsyncExitStack()
        self._shards: list[Shard] = []

    async def shard(self, index: int) -> Shard:
        """A shard that connects."""
        await wait_until_async(self.group.channel_path.exists, "the channel's listener")
        shard = Shard(self.group, index)
        self._shards.append(shard)
        return shard

    async def shards(self) -> list[Shard]:
        """All of them; the router is ready."""
        found = [await self.shard(index) for index in range(SHARDS)]
        await wait_until_async(lambda: self.life.is_ready, "the router to be ready")
        return found

    async def client(self) -> AsyncRawConnection:
        """A client."""
        return await self.opened.enter_async_context(open_raw(self.listener.getsockname()))

    async def stop(self) -> None:
        """Tell it to stop, and close what was opened."""
        self.life.stop_requested.set()
        for shard in self._shards:
            shard.give_all_back()
        await self.opened.aclose()
        await self.serving
        for shard in self._shards:
            shard.end.close()
        self.listener.close()


@pytest.fixture
async def stage(tmp_path: Path) -> AsyncIterator[RouterStage]:
    made = RouterStage(group_of(tmp_path, shards=SHARDS))
    yield made
    await made.stop()


# --- start


async def test_the_router_answers_503_until_every_shard_said_hello(stage: RouterStage) -> None:
    await stage.shard(1)
    client = await stage.client()
    reply = await client.ask(GET)
    assert (reply.status, error_code_of(reply)) == (503, "not_ready")
    assert (await client.ask(request_bytes("GET", "/livez"))).status == 200
    assert (await client.ask(READY)).status == 503
    assert not stage.life.is_ready
    assert not stage.group.ready_path.exists()
    shard = await stage.shard(0)
    await wait_until_async(lambda: stage.life.is_ready, "the router to be ready")
    assert "router" in json.loads(stage.group.ready_path.read_text())["pids"]
    await client.send(GET)
    await shard.loan()


@pytest.mark.parametrize("index", [0, SHARDS])
async def test_a_shard_that_is_not_expected_is_sent_away(stage: RouterStage, index: int) -> None:
    shards = await stage.shards()
    wrong = await stage.shard(index)
    await wait_until_async(lambda: wrong.end.ends > 0, "the end of its channel")
    assert all(not shard.end.ends for shard in shards)


async def test_a_channel_that_begins_with_another_word_is_ended(stage: RouterStage) -> None:
    await wait_until_async(stage.group.channel_path.exists, "the channel's listener")
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as sock:
        sock.connect(str(stage.group.channel_path))
        end = End(sock)
        end.channel.send(Message(Kind.BACK, 1, 0, 0, 0, b""))
        await wait_until_async(lambda: end.ends > 0, "the end of its channel")
        end.close()


async def test_a_shard_that_does_not_come_fails_the_boot(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sessions.router.main._BOOT_GRACE_S", 0.0)
    stage = RouterStage(group_of(tmp_path, shards=SHARDS, boot_deadline_s=0.2))
    caught: list[BaseException | None] = []
    loop = asyncio.get_running_loop()
    before = loop.get_exception_handler()
    loop.set_exception_handler(lambda _loop, context: caught.append(context.get("exception")))
    await stage.shard(0)
    await wait_until_async(lambda: bool(stage.life.boot_failure), "the failure")
    loop.set_exception_handler(before)
    assert stage.life.boot_failure == "shard 1 did not connect in time"
    assert [type(error) for error in caught] == [BootFailedError]
    await stage.stop()


async def test_a_shard_of_another_user_is_sent_away(
    stage: RouterStage, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "getuid", lambda: 4_000_000_000)
    stranger = await stage.shard(0)
    await wait_until_async(lambda: stranger.end.ends > 0, "the end of its channel")
    monkeypatch.undo()
    await stage.shards()


@pytest.mark.parametrize("is_ready", [False, True])
async def test_the_boot_deadline_is_over_with_the_boot_and_with_a_stop(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *, is_ready: bool
) -> None:
    monkeypatch.setattr("sessions.router.main._BOOT_GRACE_S", 0.0)
    stage = RouterStage(group_of(tmp_path, shards=SHARDS, boot_deadline_s=0.3))
    if is_ready:
        await stage.shards()
    else:
        await stage.shard(0)
        await turn(20)  # its HELLO is read
        stage.life.stop_requested.set()
    loop = asyncio.get_running_loop()
    end = loop.time() + 0.4
    await wait_until_async(lambda: loop.time() > end, "the deadline to pass")
    assert not stage.life.boot_failure
    await stage.stop()


# --- serve


async def test_loans_go_to_the_owners_and_come_back(stage: RouterStage) -> None:
    shards = await stage.shards()
    client = await stage.client()
    for number, owner in enumerate((0, 1, 0, 1)):
        session = mint_session_id(owner, SHARDS)
        request = request_bytes("GET", f"/sessions/{session}/x")
        await client.send(request)
        loan, descriptor = await shards[owner].loan(number // 2)
        assert loan.payload == request
        assert (descriptor is not None) is (number < 2)
        assert bool(loan.argument & LendFlag.DESCRIPTOR) is (number < 2)
        os.write(shards[owner].end.descriptors[0] or -1, REPLY)
        assert (await client.read_reply()).body == b"ok"
        assert stage.life.is_idle is not None
        assert not stage.life.is_idle()
        shards[owner].give_back(loan)
        await wait_until_async(stage.life.is_idle, "the loan to be back")


async def test_holders_are_told_when_the_client_leaves(stage: RouterStage) -> None:
    shards = await stage.shards()
    client = await stage.client()
    await client.send(request_bytes("GET", f"/sessions/{mint_session_id(1, SHARDS)}/x"))
    loan, _ = await shards[1].loan()
    shards[1].give_back(loan)
    client.close()
    released, _ = await shards[1].loan(1)
    assert (released.kind, released.slot) == (Kind.RELEASE, loan.slot)
    assert not shards[0].end.messages


async def test_the_router_beats_and_sends_newcomers_where_few_sessions_are(
    stage: RouterStage,
) -> None:
    shards = await stage.shards()
    stage.group.board.beat(1, sessions=5)
    beats = len(stage.life.beats)
    await wait_until_async(lambda: len(stage.life.beats) > beats, "a beat")
    client = await stage.client()
    await client.send(GET)
    await shards[1].loan()
    assert not shards[0].end.messages


# --- stop


async def test_the_router_drains_before_its_shards_go(stage: RouterStage) -> None:
    shards = await stage.shards()
    client = await stage.client()
    await client.send(GET)
    loan, descriptor = await shards[0].loan()
    begun = await stage.client()
    await begun.send(GET[:5])
    live = request_bytes("GET", "/livez")
    assert (await (await stage.client()).ask(live)).status == 200, "what came before is read"
    stage.life.stop_requested.set()
    await turn(20)
    assert not stage.serving.done()
    assert not shards[0].end.ends
    reply = await begun.ask(GET[5:])
    assert (reply.status, error_code_of(reply)) == (503, "not_ready")
    os.write(descriptor or -1, REPLY)
    shards[0].give_back(loan)
    assert (await client.read_reply()).body == b"ok"
    assert await client.read_to_end() == b""
    client.close()
    await wait_until_async(lambda: all(s.end.ends for s in shards), "the end of every channel")
    await stage.serving
    assert stage.life.is_drained


async def test_the_router_serves_on_for_the_drain_delay(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    delay_s, slept, real = 77.0, asyncio.Event(), asyncio.sleep

    async def sleep(seconds: float) -> None:
        await (slept.wait() if seconds == delay_s else real(seconds))

    monkeypatch.setattr(asyncio, "sleep", sleep)
    stage = RouterStage(group_of(tmp_path, shards=SHARDS, drain_delay_s=delay_s))
    shards = await stage.shards()
    stage.life.stop_requested.set()
    await turn(20)
    client = await stage.client()
    await client.send(GET)
    loan, _ = await shards[0].loan()
    assert not stage.life.is_drained
    shards[0].give_back(loan)
    slept.set()
    await stage.stop()
    assert stage.life.is_drained


async def test_the_router_stops_to_beat(tmp_path: Path) -> None:
    stage = RouterStage(group_of(tmp_path, shards=SHARDS))
    await stage.shards()
    assert len(_beats()) == 1
    await stage.stop()
    await turn()
    assert not _beats()


def _beats() -> list[asyncio.Task[object]]:
    return [task for task in asyncio.all_tasks() if "_beat" in repr(task.get_coro())]


async def test_the_router_leaves_no_descriptor_open(tmp_path: Path) -> None:
    before = open_descriptors()
    stage = RouterStage(group_of(tmp_path, shards=SHARDS))
    shards = await stage.shards()
    client = await stage.client()
    await client.send(GET)
    loan, _ = await shards[0].loan()
    shards[0].give_back(loan)
    await stage.stop()
    await wait_until_async(lambda: open_descriptors() <= before, "all descriptors to be closed")


# --- deaths


@contextlib.contextmanager
def process_shard(group: Group, index: int):
    """A shard that is a process, and says nothing after its HELLO."""
    command = [sys.executable, "-S", "-c", SHARD_PROCESS, str(group.channel_path), str(index)]
    process = subprocess.Popen(command)
    try:
        yield process
    finally:
        process.kill()
        process.wait()


async def test_the_death_of_a_shard_ends_the_router_after_its_last_words(
    stage: RouterStage, monkeypatch: pytest.MonkeyPatch
) -> None:
    codes: list[int] = []
    monkeypatch.setattr(os, "_exit", codes.append)
    monkeypatch.setattr("logging.shutdown", lambda: None)
    await stage.shard(0)
    with process_shard(stage.group, 1) as process:
        await wait_until_async(lambda: stage.life.is_ready, "the router to be ready")
        client = await stage.client()
        await client.send(request_bytes("GET", f"/sessions/{mint_session_id(1, SHARDS)}/x"))
        monkeypatch.setattr(
            signal, "pidfd_send_signal", lambda *_: None
        )  # the other shard is this test
        assert stage.life.is_idle is not None
        await wait_until_async(lambda: not stage.life.is_idle(), "the loan")  # type: ignore[misc]
        process.kill()
        reply = await client.read_reply()
    assert (reply.status, error_code_of(reply)) == (503, "group_dying")
    assert "shard 1" in reply.body.decode()
    await wait_until_async(lambda: codes == [70], "the router's end")


async def test_the_router_goes_on_without_a_shard_by_that_policy(tmp_path: Path) -> None:
    group = group_of(tmp_path, shards=SHARDS, on_shard_exit=ExitPolicy.CONTINUE)
    stage = RouterStage(group)
    live = await stage.shard(0)
    with process_shard(group, 1) as process:
        await wait_until_async(lambda: stage.life.is_ready, "the router to be ready")
        clients = [await stage.client() for _ in range(2)]
        session = request_bytes("GET", f"/sessions/{mint_session_id(1, SHARDS)}/x")
        for client in clients:
            await client.send(session)
        assert stage.life.is_idle is not None
        await wait_until_async(lambda: not stage.life.is_idle(), "the loans")  # type: ignore[misc]
        group.cells.mark(1, 1, CellState.COMPLETE)
        process.kill()
        reply = await clients[0].read_reply()
        assert (reply.status, error_code_of(reply)) == (410, "shard_gone")
        reply = await clients[1].ask(session)
        assert (reply.status, error_code_of(reply)) == (410, "shard_gone")
        await clients[1].send(GET)
        await live.loan()
    await stage.stop()
    assert stage.life.is_drained
