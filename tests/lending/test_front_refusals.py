"""Connections beyond the limit on both loops: told so, whatever they send, and ended."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from sessions.lending.connection import LINGER_QUIET_S
from sessions.lending.front import REFUSED_LINGER_COUNT
from tests.support.fronts import FrontStage, error_code_of, open_front
from tests.support.loops import BOTH_LOOPS, Backend
from tests.support.members import group_of
from tests.support.raw import request_bytes
from tests.support.waiting import wait_until_async

LIVE = request_bytes("GET", "/livez")


@pytest.fixture(params=BOTH_LOOPS)
def anyio_backend(request: pytest.FixtureRequest) -> Backend:
    backend: Backend = request.param
    return backend


@pytest.fixture
async def full(tmp_path: Path) -> AsyncIterator[FrontStage]:
    """A front with room for one connection, which is taken."""
    async with open_front(group_of(tmp_path, max_connections=1)) as opened:
        assert (await (await opened.connect()).ask(LIVE)).status == 200
        yield opened


async def test_a_connection_beyond_the_limit_is_told_so_and_ended(full: FrontStage) -> None:
    client = await full.connect()
    reply = await client.read_reply()
    assert (reply.status, error_code_of(reply)) == (503, "overloaded")
    assert (reply.header("retry-after"), reply.header("connection")) == ("1", "close")
    assert await client.read_to_end() == b""
    client.close()
    await wait_until_async(lambda: not full.front._refused, "the refused one is gone")


async def test_no_reset_eats_the_refusal_of_a_client_that_is_still_sending(
    full: FrontStage,
) -> None:
    client = await full.connect()
    await client.send(LIVE + bytes(1 << 20), piece_bytes=65536)
    assert (await client.read_reply()).status == 503
    assert await client.read_to_end() == b""


async def test_a_refused_client_that_stays_is_closed_after_a_while(full: FrontStage) -> None:
    client = await full.connect()
    await client.read_reply()
    await full.pass_time(LINGER_QUIET_S - 0.1)
    assert full.front._refused
    await full.pass_time(0.2)
    await wait_until_async(lambda: not full.front._refused, "the refused one is gone")


async def test_only_so_many_refused_clients_stay(full: FrontStage) -> None:
    clients = [await full.connect() for _ in range(REFUSED_LINGER_COUNT + 5)]
    for client in clients:
        assert (await client.read_reply()).status == 503
        assert await client.read_to_end() == b""
    assert len(full.front._refused) == REFUSED_LINGER_COUNT


async def test_a_slot_that_is_free_again_is_given_to_the_next(full: FrontStage) -> None:
    (connection,) = full.front.connections
    connection.transport.abort()
    await full.wait_empty()
    assert (await (await full.connect()).ask(LIVE)).status == 200


async def test_draining_closes_on_refused_clients_that_never_do(full: FrontStage) -> None:
    client = await full.connect()
    assert (await client.read_reply()).status == 503
    await wait_until_async(lambda: len(full.front._refused) == 1, "the lingering")
    drained = asyncio.create_task(full.front.drain(lambda: 0))
    await full.pass_last_moment()
    await drained
    assert not full.front._refused
