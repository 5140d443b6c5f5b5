"""The life of a router in this process, with the test as its shards: start, serve, drain."""

from __future__ import annotations

import asyncio
import json
import os
import socket
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from sessions.lending.messages import Kind, LendFlag, Message
from sessions.routing.claim_keys import claim_key
from sessions.routing.claimed_kinds import MCP_SESSION, MCP_SESSIONS
from sessions.routing.ids import mint_session_id
from sessions.routing.kinds import ROLLOUT
from tests.support.channels import End
from tests.support.fronts import error_code_of
from tests.support.loops import BOTH_LOOPS, Backend, open_descriptors, turn
from tests.support.members import BootFailedError, group_of
from tests.support.raw import request_bytes
from tests.support.routers import SHARDS, RouterStage
from tests.support.waiting import wait_until_async

GET = request_bytes("GET", "/one")
READY = request_bytes("GET", "/readyz")
REPLY = b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok"


@pytest.fixture(params=BOTH_LOOPS)
def anyio_backend(request: pytest.FixtureRequest) -> Backend:
    backend: Backend = request.param
    return backend


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


async def test_shards_with_other_kinds_than_the_first_fail_the_boot(stage: RouterStage) -> None:
    loop = asyncio.get_running_loop()
    before = loop.get_exception_handler()
    loop.set_exception_handler(lambda _loop, _context: None)  # the fake's failure is an exception
    await stage.shard(0, (MCP_SESSIONS, ROLLOUT))
    await turn(20)
    await stage.shard(1, (ROLLOUT,))
    await wait_until_async(lambda: bool(stage.life.boot_failure), "the failure")
    loop.set_exception_handler(before)
    assert "other kinds of sessions" in stage.life.boot_failure


async def test_requests_are_named_by_the_kinds_of_the_shards(stage: RouterStage) -> None:
    shards = [await stage.shard(index, (MCP_SESSIONS,)) for index in range(SHARDS)]
    await wait_until_async(lambda: stage.life.is_ready, "the router to be ready")
    key = claim_key(MCP_SESSION, "m")
    shards[1].end.channel.send(Message(Kind.CLAIM, 0, 0, 0, 1, key))
    await wait_until_async(lambda: bool(shards[1].end.messages), "the answer")
    assert shards[1].end.messages[0].kind == Kind.CLAIMED
    client = await stage.client()
    await client.send(request_bytes("POST", "/mcp", [("Mcp-Session-Id", "m")], b"x"))
    loan, _ = await shards[1].loan(1)
    assert loan.kind == Kind.LEND


async def test_a_hello_without_kinds_is_ended(stage: RouterStage) -> None:
    await wait_until_async(stage.group.channel_path.exists, "the channel's listener")
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as sock:
        sock.connect(str(stage.group.channel_path))
        end = End(sock)
        end.channel.send(Message(Kind.HELLO, 0, 0, 0, 0, b"?"))
        await wait_until_async(lambda: end.ends > 0, "the end of its channel")
        end.close()


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


async def test_where_sessions_are_claimed_the_board_is_not_asked_for_them(
    stage: RouterStage,
) -> None:
    shards = [await stage.shard(index, (ROLLOUT, MCP_SESSIONS)) for index in range(SHARDS)]
    await wait_until_async(lambda: stage.life.is_ready, "the router to be ready")
    stage.group.board.beat(1, sessions=5)
    beats = len(stage.life.beats)
    await wait_until_async(lambda: len(stage.life.beats) > beats, "a beat")
    client = await stage.client()
    await client.send(GET)
    await shards[0].loan()
    assert not shards[1].end.messages


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
    delay_s, slept = 77.0, asyncio.Event()

    async def wait_set(_event: asyncio.Event, limit_s: float) -> bool:
        assert limit_s == delay_s
        return await slept.wait()

    monkeypatch.setattr("sessions.router.main.wait_set", wait_set)
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


async def test_a_router_that_must_hurry_does_not_wait_for_the_drain_delay(tmp_path: Path) -> None:
    stage = RouterStage(group_of(tmp_path, shards=SHARDS, drain_delay_s=77.0))
    await stage.shards()
    stage.life.hurry_requested.set()
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


async def test_the_router_leaves_no_channel_open_that_came_without_a_hello(tmp_path: Path) -> None:
    before = open_descriptors()
    stage = RouterStage(group_of(tmp_path, shards=SHARDS))
    await stage.shards()
    served = open_descriptors()
    for stays in (False, True):
        with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as sock:
            sock.connect(str(stage.group.channel_path))
            await _wait_open(served + 2)
            if stays:
                await stage.stop()
                await _wait_open(before + 1)
        await _wait_open(before if stays else served)


async def _wait_open(count: int) -> None:
    await wait_until_async(lambda: open_descriptors() == count, f"{count} open descriptors")


@pytest.mark.parametrize("index", [0, SHARDS])
async def test_the_router_leaves_nothing_open_of_a_shard_that_it_sent_away(
    stage: RouterStage, index: int
) -> None:
    await stage.shards()
    before = open_descriptors()
    wrong = await stage.shard(index)
    await wait_until_async(lambda: wrong.end.ends > 0, "the end of its channel")
    wrong.end.close()
    await wait_until_async(lambda: open_descriptors() == before, "all of it to be closed")
