"""A client connection of a front that drains, on both loops."""

from __future__ import annotations

import asyncio
import contextlib
import socket

import pytest

from sessions.errors.group import NotReadyError, draining_error
from sessions.lending.slots import SlotState
from tests.support.fronts import FrontStage, error_code_of
from tests.support.loops import BOTH_LOOPS, Backend, turn
from tests.support.raw import request_bytes
from tests.support.waiting import wait_until_async

LIVE = request_bytes("GET", "/livez")
ASK = request_bytes("GET", "/sessions/a/x")


@pytest.fixture(params=BOTH_LOOPS)
def anyio_backend(request: pytest.FixtureRequest) -> Backend:
    backend: Backend = request.param
    return backend


async def test_draining_ends_idle_connections_alone(stage: FrontStage) -> None:
    idle = await stage.connect()
    await idle.ask(LIVE)
    busy, connection = await stage.lent(ASK)
    drained = asyncio.create_task(stage.front.drain(lambda: connection.slot.generation % 2))
    await stage.pass_last_moment()
    assert await idle.read_to_end() == b""
    await turn(20)
    assert not drained.done()
    assert connection.slot.state is SlotState.LENT
    connection.slot.generation += 1  # what the dispatcher counts is down to zero
    connection.take_back(0, b"", kept=True)
    await stage.pass_last_moment()
    assert await busy.read_to_end() == b""
    busy.close()
    await drained


@pytest.mark.parametrize("turns", [0, 1, 2, 3])
async def test_a_connection_that_came_before_the_listener_closed_is_answered(
    stage: FrontStage, turns: int
) -> None:
    """It is connected by the kernel: it waits there, or is accepted and not made yet."""
    stage.dispatcher.refusal = draining_error()
    clients = [socket.create_connection(stage.address) for _ in range(5)]
    await turn(turns)
    for client in clients:
        client.sendall(ASK)
    drained = asyncio.create_task(stage.front.drain(lambda: 0))
    for client in clients:
        with contextlib.closing(client):
            client.setblocking(False)  # noqa: FBT003 - positional only
            async with asyncio.timeout(10):
                reply = await asyncio.get_running_loop().sock_recv(client, 65536)
            assert reply.startswith(b"HTTP/1.1 503 "), reply
    await drained


@pytest.mark.parametrize("request_bytes_there", [0, 5], ids=["idle", "half a head"])
async def test_a_request_that_was_under_way_when_draining_began_is_answered(
    stage: FrontStage, request_bytes_there: int
) -> None:
    """Its client has no word of the end yet, so it must not lose what it sends."""
    client = await stage.connect()
    await client.ask(LIVE)
    await client.send(ASK[:request_bytes_there])
    connection = await stage.connection()
    await wait_until_async(lambda: len(connection._buffer) == request_bytes_there, "the bytes")
    stage.dispatcher.refusal = draining_error()
    drained = asyncio.create_task(stage.front.drain(lambda: 0))
    await turn(20)
    reply = await client.ask(ASK[request_bytes_there:])
    assert (reply.status, reply.header("connection")) == (503, "close")
    assert await client.read_to_end() == b""
    client.close()
    await drained


async def test_a_request_behind_an_exchange_that_ends_while_draining_is_answered(
    stage: FrontStage,
) -> None:
    client, connection = await stage.lent(ASK)
    stage.dispatcher.refusal = draining_error()
    drained = asyncio.create_task(stage.front.drain(lambda: 0))
    await turn(20)
    connection.take_back(0, b"", kept=True)  # with a reply that did not say close
    await turn(20)
    assert (await client.ask(ASK)).status == 503
    assert await client.read_to_end() == b""
    client.close()
    await drained


async def test_a_head_that_does_not_end_while_draining_is_told_so(stage: FrontStage) -> None:
    client = await stage.connect()
    await client.send(ASK[:5])
    connection = await stage.connection()
    await wait_until_async(lambda: bool(connection._buffer), "the first bytes")
    drained = asyncio.create_task(stage.front.drain(lambda: 0))
    await stage.pass_last_moment()
    reply = await client.read_reply()
    assert (reply.status, error_code_of(reply)) == (503, NotReadyError.code)
    client.close()
    await drained


async def test_a_request_behind_the_last_exchange_is_refused_when_draining(
    stage: FrontStage,
) -> None:
    client, connection = await stage.lent(ASK)
    stage.front.is_closing = True
    stage.dispatcher.refusal = NotReadyError("draining")
    connection.take_back(0, ASK, kept=True)
    reply = await client.read_reply()
    assert (reply.status, reply.header("connection")) == (503, "close")
    assert await client.read_to_end() == b""


async def test_a_probe_says_close_when_draining(stage: FrontStage) -> None:
    client = await stage.connect()
    await client.send(LIVE[:5])
    connection = await stage.connection()
    await wait_until_async(lambda: bool(connection._buffer), "the first bytes")
    stage.front.is_closing = True
    connection.hurry()
    await client.send(LIVE[5:])
    reply = await client.read_reply()
    assert (reply.status, reply.header("connection")) == (200, "close")
    assert await client.read_to_end() == b""
