"""The deaths of shards as a router in this process sees them, with processes as shards."""

from __future__ import annotations

import logging
import os
import signal
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from sessions.lending.cells import CellState
from sessions.routing.ids import mint_session_id
from sessions.settings import ExitPolicy, RouterMode
from tests.support.fronts import error_code_of
from tests.support.loops import BOTH_LOOPS, Backend, turn
from tests.support.members import group_of
from tests.support.raw import request_bytes
from tests.support.routers import SHARDS, RouterStage, process_shard
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


@pytest.fixture
def codes(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Exit codes of this process, which goes on all the same."""
    found: list[int] = []
    monkeypatch.setattr(os, "_exit", found.append)
    monkeypatch.setattr("logging.shutdown", lambda: None)
    return found


async def test_the_death_of_a_shard_ends_the_router_after_its_last_words(
    stage: RouterStage, codes: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
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


async def test_two_deaths_end_the_router_once(tmp_path: Path, codes: list[int]) -> None:
    stage = RouterStage(group_of(tmp_path, shards=SHARDS))
    await wait_until_async(stage.group.channel_path.exists, "the channel's listener")
    with process_shard(stage.group, 0) as first, process_shard(stage.group, 1) as second:
        await wait_until_async(lambda: stage.life.is_ready, "the router to be ready")
        for process in (first, second):
            process.kill()
        for process in (first, second):
            process.wait()
        await wait_until_async(lambda: bool(codes), "the router's end")
        await turn(50)
    await stage.stop()
    assert codes == [70]


@pytest.mark.parametrize("is_ready", [False, True])
async def test_a_group_cannot_go_on_without_its_last_shard_or_before_it_is_whole(
    tmp_path: Path, codes: list[int], caplog: pytest.LogCaptureFixture, *, is_ready: bool
) -> None:
    caplog.set_level(logging.INFO)
    shards = 1 if is_ready else SHARDS
    group = group_of(
        tmp_path, shards=shards, router=RouterMode.ALWAYS, on_shard_exit=ExitPolicy.CONTINUE
    )
    stage = RouterStage(group)
    await wait_until_async(group.channel_path.exists, "the channel's listener")
    with process_shard(group, 0) as process:
        await wait_until_async(lambda: "shard connected" in caplog.text, "its hello")
        process.kill()
        await wait_until_async(lambda: codes == [70], "the router's end")
    await stage.stop()
