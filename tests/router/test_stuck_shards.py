"""Shards that say nothing when a stop is overdue: ended, and answered for."""

from __future__ import annotations

import os
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from sessions.lending.cells import CellState
from sessions.routing.ids import mint_session_id
from tests.support.fronts import error_code_of
from tests.support.loops import BOTH_LOOPS, Backend
from tests.support.members import group_of
from tests.support.raw import AsyncRawConnection, request_bytes
from tests.support.replies import ConnectionEndedError
from tests.support.routers import SHARDS, RouterStage, process_shard
from tests.support.waiting import wait_until_async

REPLY = b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok"


@pytest.fixture(params=BOTH_LOOPS)
def anyio_backend(request: pytest.FixtureRequest) -> Backend:
    backend: Backend = request.param
    return backend


@pytest.fixture(autouse=True)
def _impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sessions.router.stuck_shards.STUCK_S", 0.05)


@pytest.fixture
async def stage(tmp_path: Path) -> AsyncIterator[RouterStage]:
    """A router that was given no time."""
    made = RouterStage(group_of(tmp_path, shards=SHARDS, graceful_s=0))
    yield made
    await made.stop()


async def lent(stage: RouterStage, owner: int) -> AsyncRawConnection:
    """A client whose request is with a shard."""
    client = await stage.client()
    await client.send(request_bytes("GET", f"/sessions/{mint_session_id(owner, SHARDS)}/x"))
    await wait_until_async(lambda: not stage.life.is_idle(), "the loan")  # type: ignore[misc]
    return client


async def test_a_stuck_shard_is_ended_and_its_client_answered(stage: RouterStage) -> None:
    await stage.shard(0)
    with process_shard(stage.group, 1) as process:
        await wait_until_async(lambda: stage.life.is_ready, "the router to be ready")
        client = await lent(stage, 1)
        stage.life.stop_requested.set()
        reply = await client.read_reply()
        assert (reply.status, error_code_of(reply)) == (503, "group_stopped")
        assert (reply.header("x-should-retry"), reply.header("connection")) == ("false", "close")
        assert await client.read_to_end() == b""
        await stage.serving
        assert process.wait() == -9
    assert stage.life.is_drained


async def test_a_reply_of_a_stuck_shard_is_cut_in_the_middle(stage: RouterStage) -> None:
    await stage.shard(0)
    with process_shard(stage.group, 1):
        await wait_until_async(lambda: stage.life.is_ready, "the router to be ready")
        client = await lent(stage, 1)
        stage.group.cells.mark(0, 1, CellState.REPLYING)
        stage.life.stop_requested.set()
        with pytest.raises(ConnectionEndedError):
            await client.read_reply()
        await stage.serving


async def test_a_shard_with_nothing_in_flight_is_left_alone(stage: RouterStage) -> None:
    idle = await stage.shard(0)
    with process_shard(stage.group, 1) as process:
        await wait_until_async(lambda: stage.life.is_ready, "the router to be ready")
        client = await lent(stage, 0)
        loan, descriptor = await idle.loan()
        os.write(descriptor or -1, REPLY)
        idle.give_back(loan)
        assert (await client.read_reply()).body == b"ok"
        client.close()
        stage.life.stop_requested.set()
        await stage.serving
        assert process.poll() is None
    assert stage.life.is_drained
