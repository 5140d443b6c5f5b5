"""Many exchanges at once, cancels, and several engines."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from functools import partial

import pytest

from sessions.engine.choice import DEAD_S, EngineChoice
from sessions.engine.engine import EngineReply
from sessions.engine.http_engines import HttpEngines
from sessions.errors.engine import EngineUnreachableError
from tests.support.engine_clients import SILENCE, client_of, engine_at, error_of, request
from tests.support.loops import BOTH_LOOPS, Backend, open_descriptors, turn
from tests.support.raw_engine import OK, RawEngine, answers_in_order, raw_engine
from tests.support.raw_replies import KeepingSink, length_reply
from tests.support.waiting import wait_until_async


@pytest.fixture(params=BOTH_LOOPS)
def anyio_backend(request: pytest.FixtureRequest) -> Backend:
    backend: Backend = request.param
    return backend


# --- many at once (cases C-T42 and C-T43)


async def test_hundreds_of_exchanges_are_in_flight_at_once():
    async with engine_at(OK) as (engine, server):
        server.gate.clear()
        tasks = [asyncio.create_task(engine.exchange(request())) for _ in range(300)]
        await wait_until_async(lambda: len(server.asked) == 300, "the engine has all of them")
        assert engine.in_use == [300]
        server.gate.set()
        replies: list[EngineReply] = await asyncio.gather(*tasks)
        assert {reply.body for reply in replies} == {b"ok"}
        assert engine.in_use == [0]


async def test_a_cancel_closes_the_connection_so_that_the_engine_stops():
    async with engine_at(SILENCE) as (engine, server):
        task = asyncio.create_task(engine.exchange(request()))
        await wait_until_async(lambda: bool(server.asked), "the engine got the request")
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        await wait_until_async(lambda: server.open_count == 0, "the engine sees the end")
        assert engine.in_use == [0]


def has_asked(server: RawEngine, count: int) -> bool:
    return len(server.asked) >= count


async def test_after_500_cancels_in_every_state_nothing_is_in_use_and_100_exchanges_work():
    before = open_descriptors()
    async with engine_at(OK) as (engine, server):
        server.gate.clear()
        for wave in range(10):
            tasks = [asyncio.create_task(engine.exchange(request())) for _ in range(50)]
            if wave % 2:
                half = partial(has_asked, server, len(server.asked) + 25)
                await wait_until_async(half, "half of them are asked")
            else:
                await turn(wave)
            for task in tasks:
                task.cancel()
            ended = await asyncio.gather(*tasks, return_exceptions=True)
            assert {type(end) for end in ended} == {asyncio.CancelledError}
            assert engine.in_use == [0]
        server.gate.set()
        replies = await asyncio.gather(*(engine.exchange(request()) for _ in range(100)))
        assert {reply.body for reply in replies} == {b"ok"}
        assert engine.in_use == [0]
    await wait_until_async(lambda: open_descriptors() <= before, "no descriptor is left")


async def test_closing_fails_what_still_runs():
    async with engine_at(SILENCE) as (engine, server):
        task = asyncio.create_task(engine.exchange(request()))
        await wait_until_async(lambda: bool(server.asked), "the engine got the request")
        await engine.close()
        assert isinstance(await error_of(lambda: asyncio.shield(task)), EngineUnreachableError)


async def test_closing_fails_an_exchange_that_waits_for_room():
    async with engine_at(length_reply(b"x" * 8_000_000)) as (engine, _):
        sink = KeepingSink(has_room=lambda _: False)
        sink.room.clear()
        task = asyncio.create_task(engine.exchange(request(), sink.open))
        await wait_until_async(lambda: sink.waits == 1, "the exchange waits for room")
        await engine.close()
        sink.room.set()
        error = await error_of(lambda: asyncio.shield(task))
        assert isinstance(error, EngineUnreachableError)


# --- several engines (case C-T45)


@asynccontextmanager
async def two_engines() -> AsyncIterator[tuple[HttpEngines, RawEngine, RawEngine]]:
    async with raw_engine(answers_in_order(OK)) as a, raw_engine(answers_in_order(OK)) as b:
        client = client_of(a, b)
        try:
            yield client, a, b
        finally:
            await client.close()


async def test_a_session_stays_with_its_engine_and_sessions_spread():
    async with two_engines() as (client, a, b):
        for n in range(40):
            await client.exchange(request(b"/s%d" % (n % 10), affinity=f"s{n % 10}"))
        targets = [{asked.target for asked in engine.asked} for engine in (a, b)]
        assert [len(found) for found in targets] == [5, 5]
        assert not targets[0] & targets[1]


async def test_a_session_goes_to_the_engine_with_fewer_exchanges():
    async with two_engines() as (client, a, b):
        a.gate.clear()
        b.gate.clear()
        first = asyncio.create_task(client.exchange(request(affinity="x")))
        await wait_until_async(lambda: bool(a.asked or b.asked), "one is busy")
        busy, free = (a, b) if a.asked else (b, a)
        free.gate.set()
        for n in range(5):
            await client.exchange(request(affinity=f"s{n}"))
        assert (len(busy.asked), len(free.asked)) == (1, 5)
        busy.gate.set()
        await first


async def test_the_session_of_a_dead_engine_goes_to_another_one_and_stays_there():
    async with raw_engine(answers_in_order(OK)) as alive:
        async with raw_engine(answers_in_order(OK)) as dying:
            client = client_of(alive, dying)
            for n in range(4):
                await client.exchange(request(affinity=f"s{n}"))
            assert (len(alive.asked), len(dying.asked)) == (2, 2)
        for n in range(4):
            assert (await client.exchange(request(affinity=f"s{n}"))).body == b"ok"
        assert len(alive.asked) == 2 + 4
        assert client.in_use == [0, 0]
        await client.close()


async def test_a_dead_engine_is_left_alone_and_used_again_when_it_takes_connections(
    caplog: pytest.LogCaptureFixture,
):
    now = 100.0
    async with raw_engine(answers_in_order(OK)) as alive, raw_engine(answers_in_order(OK)) as other:
        client = client_of(alive, other)
        client._choice = EngineChoice(2, now=lambda: now)
        client._pools[1].address = replace(client._pools[1].address, port=1)
        for n in range(10):
            assert (await client.exchange(request(affinity=f"s{n}"))).body == b"ok"
        assert len(caplog.records) == 1  # one request found it dead, the others did not try
        assert "connection refused" in caplog.records[0].getMessage()
        now += DEAD_S
        client._pools[1].address = replace(client._pools[1].address, port=other.port)
        for n in range(10, 20):
            await client.exchange(request(affinity=f"s{n}"))
        assert (len(alive.asked), len(other.asked)) == (15, 5)
        await client.close()


async def test_with_all_engines_dead_the_error_is_a_502():
    client = HttpEngines(
        ["http://127.0.0.1:1", "http://127.0.0.1:2"], timeout_s=30, connect_timeout_s=30
    )
    for _ in range(3):
        error = await error_of(lambda: client.exchange(request(affinity="a")))
        assert isinstance(error, EngineUnreachableError)
    assert client.in_use == [0, 0]
    await client.close()


async def test_a_session_that_ended_is_forgotten():
    async with two_engines() as (client, _, _):
        await client.exchange(request(affinity="a"))
        assert client.affinity_count == 1
        client.forget("a")
        assert client.affinity_count == 0
