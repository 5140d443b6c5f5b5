import asyncio
import contextlib
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from sessions.engine.address import parse_address
from sessions.engine.connection import EngineConnection
from sessions.engine.pool import EnginePool
from sessions.engine.reply_reader import ReplyReader
from sessions.errors.engine import EngineUnreachableError
from tests.support.loops import BOTH_LOOPS, Backend, open_descriptors
from tests.support.raw_engine import Answer, RawEngine, raw_engine
from tests.support.waiting import wait_until_async

ASK = [b"GET / HTTP/1.1\r\n\r\n", b""]


@pytest.fixture(params=BOTH_LOOPS)
def anyio_backend(request: pytest.FixtureRequest) -> Backend:
    backend: Backend = request.param
    return backend


def pool_at(port: int, host: str = "127.0.0.1", **options: Any) -> EnginePool:  # noqa: ANN401
    return EnginePool(
        parse_address(f"http://{host}:{port}"),
        buffer=memoryview(bytearray(65536)),
        tls=None,
        **{"connect_timeout_s": 30, **options},
    )


@asynccontextmanager
async def engine_and_pool(**options: Any) -> AsyncIterator[tuple[RawEngine, EnginePool]]:  # noqa: ANN401
    async with raw_engine(lambda _: Answer()) as engine:
        pool = pool_at(engine.port, **options)
        try:
            yield engine, pool
        finally:
            await pool.close()
            assert (pool.open_count, pool.idle_count) == (0, 0)


async def used(pool: EnginePool, connection: EngineConnection) -> None:
    reader = ReplyReader(is_head_request=False)
    if await connection.exchange(ASK, reader, 30):
        pool.give_back(connection)


async def test_an_idle_connection_is_taken_before_a_new_one_is_made():
    async with engine_and_pool() as (engine, pool):
        first = await pool.take(is_fresh=False)
        await used(pool, first)
        assert pool.idle_count == 1
        assert await pool.take(is_fresh=False) is first
        assert pool.idle_count == 0
        await used(pool, first)
        assert await pool.take(is_fresh=True) is not first
        assert (engine.connections, pool.open_count) == (2, 2)


async def test_the_warmest_connection_is_taken_first():
    async with engine_and_pool() as (_, pool):
        taken = [await pool.take(is_fresh=True) for _ in range(3)]
        for connection in taken:
            await used(pool, connection)
        assert [await pool.take(is_fresh=False) for _ in range(3)] == taken[::-1]


async def test_there_is_no_limit_on_connections_in_use():
    async with engine_and_pool() as (engine, pool):
        await asyncio.gather(*(pool.take(is_fresh=False) for _ in range(300)))
        await wait_until_async(lambda: engine.connections == 300, "all are accepted")
        assert pool.open_count == 300


async def test_more_idle_connections_than_the_limit_are_closed():
    async with engine_and_pool(idle_connections=2) as (engine, pool):
        taken = [await pool.take(is_fresh=True) for _ in range(3)]
        for connection in taken:
            await used(pool, connection)
        assert pool.idle_count == 2
        await wait_until_async(lambda: pool.open_count == 2, "the third is closed")
        await wait_until_async(lambda: engine.open_count == 2, "the engine sees it")


async def test_connections_that_idle_for_their_time_are_closed():
    async with engine_and_pool(idle_s=0.02) as (engine, pool):
        for connection in [await pool.take(is_fresh=True) for _ in range(3)]:
            await used(pool, connection)
        await wait_until_async(lambda: engine.open_count == 0, "all are closed")
        assert (pool.open_count, pool.idle_count) == (0, 0)
        await used(pool, await pool.take(is_fresh=False))  # and the pool goes on
        await wait_until_async(lambda: pool.open_count == 0, "that one too")


@pytest.mark.parametrize("reset", [False, True])
async def test_a_connection_that_its_engine_ends_is_closed_at_once(*, reset: bool):
    before = open_descriptors()
    async with engine_and_pool() as (engine, pool):
        for connection in [await pool.take(is_fresh=True) for _ in range(3)]:
            await used(pool, connection)
        engine.end_connections(reset=reset)
        await wait_until_async(lambda: pool.open_count == 0, "no CLOSE-WAIT is left")
        assert pool.idle_count == 0
        await wait_until_async(lambda: open_descriptors() == before + 1, "only the listener is")


async def test_a_connection_that_ended_is_not_taken_back():
    async with engine_and_pool() as (_, pool):
        connection = await pool.take(is_fresh=True)
        connection.abort()
        pool.give_back(connection)
        assert pool.idle_count == 0


async def test_an_idle_connection_that_just_ended_is_not_taken():
    async with engine_and_pool() as (_, pool):
        connection = await pool.take(is_fresh=True)
        await used(pool, connection)
        connection.abort()  # what it does when its engine speaks unasked
        assert pool.idle_count == 1
        assert await pool.take(is_fresh=False) is not connection


async def test_a_connection_that_ends_as_soon_as_it_is_made_is_none(
    monkeypatch: pytest.MonkeyPatch,
):
    async with engine_and_pool() as (_, pool):
        monkeypatch.setattr(EngineConnection, "is_usable", property(lambda _: False))
        with pytest.raises(EngineUnreachableError, match="at once"):
            await pool.take(is_fresh=True)
        assert pool.open_count == 0


async def test_an_engine_that_does_not_listen_is_unreachable():
    pool = pool_at(1)
    with pytest.raises(EngineUnreachableError, match="cannot be reached: connection refused"):
        await pool.take(is_fresh=False)
    assert pool.open_count == 0


async def test_a_name_that_nobody_knows_is_unreachable():
    pool = pool_at(1, "no-such-host.invalid")
    with pytest.raises(EngineUnreachableError, match="its name is not known"):
        await pool.take(is_fresh=False)


async def test_a_connection_that_takes_too_long_is_given_up_without_a_trace():
    before = open_descriptors()
    with socket.socket() as full:
        full.bind(("127.0.0.1", 0))
        full.listen(0)
        address = full.getsockname()
        with socket.create_connection(address):  # fills the backlog
            pool = pool_at(address[1], connect_timeout_s=0.02)
            with pytest.raises(EngineUnreachableError, match="in time"):
                await pool.take(is_fresh=False)
    await wait_until_async(lambda: open_descriptors() == before, "no descriptor is left")


async def test_a_cancelled_take_leaves_no_connection():
    async with engine_and_pool() as (engine, pool):
        for turns in range(8):
            task = asyncio.create_task(pool.take(is_fresh=True))
            for _ in range(turns):
                await asyncio.sleep(0)
            task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                (await task).abort()  # it was there before the cancel
        await wait_until_async(lambda: pool.open_count == 0, "none is open")
        await wait_until_async(lambda: engine.open_count == 0, "none at the engine either")


async def test_an_ipv6_engine_is_reached():
    async with raw_engine(lambda _: Answer(), host="::1") as engine:
        pool = pool_at(engine.port, "[::1]")
        await used(pool, await pool.take(is_fresh=False))
        assert len(engine.asked) == 1
        await pool.close()


async def test_small_requests_are_not_held_back_and_silent_peers_are_found():
    async with engine_and_pool() as (_, pool):
        connection = await pool.take(is_fresh=True)
        assert connection._transport is not None
        found = connection._transport.get_extra_info("socket")
        assert found.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY)
        assert found.getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE)
        assert found.getsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPIDLE) == 30
