"""The sweep on a lone shard and behind a router: clients that leave, bodies that stand still."""

from __future__ import annotations

import asyncio

import pytest

from sessions.errors.protocol import BodyTooSlowError
from sessions.shard.sweep import Sweep
from tests.support.apps import pattern_of
from tests.support.fronts import error_code_of
from tests.support.held_app import HeldApp
from tests.support.loops import BOTH_LOOPS, Backend, turn
from tests.support.raw import request_bytes
from tests.support.stages import Stage, serve_next
from tests.support.waiting import wait_until_async

BODY = pattern_of("body", 300_000)
POST = request_bytes("POST", "/one", body=BODY)
HEAD_BYTES = len(POST) - len(BODY)
LONG_AGO_S = 1000.0


@pytest.fixture(params=BOTH_LOOPS)
def anyio_backend(request: pytest.FixtureRequest) -> Backend:
    backend: Backend = request.param
    return backend


def sweep_of(stage: Stage) -> Sweep:
    return stage.house._sweep if stage.house is not None else stage.shards[0].loans._sweep


def tick(stage: Stage) -> None:
    """What the sweep's timer does."""
    sweep = sweep_of(stage)
    sweep._timer.cancel()
    sweep._tick()


def age(stage: Stage) -> None:
    """Make the body's last progress long ago, then tick."""
    (exchange,) = stage.exchanges
    exchange.progress_at -= LONG_AGO_S
    tick(stage)


async def test_a_body_that_stands_still_gets_408_and_the_end(stage: Stage, app: HeldApp) -> None:
    client = await stage.connect()
    await client.send(POST[: HEAD_BYTES + 5])
    call = await app.call()
    reading = asyncio.create_task(call.read_body())
    await turn()
    tick(stage)
    assert stage.lent_count == 1, "not before its time"
    age(stage)
    reply = await client.read_reply()
    assert (reply.status, error_code_of(reply)) == (408, BodyTooSlowError.code)
    assert reply.headers[-1] == ("connection", "close")
    assert await client.read_to_end() == b""
    assert await reading is None
    await stage.wait_back()


async def test_every_byte_of_a_body_is_progress(stage: Stage, app: HeldApp) -> None:
    client = await stage.connect()
    await client.send(POST[: HEAD_BYTES + 5])
    call = await app.call()
    (exchange,) = stage.exchanges
    exchange.progress_at -= LONG_AGO_S
    before = exchange.progress_at
    await client.send(POST[HEAD_BYTES + 5 : HEAD_BYTES + 6])
    await wait_until_async(lambda: exchange.progress_at > before, "the byte")
    tick(stage)
    assert stage.lent_count == 1
    await client.send(POST[HEAD_BYTES + 6 :])
    assert await call.read_body() == BODY
    await call.reply(b"ok")
    assert (await client.read_reply()).status == 200


async def test_an_application_that_reads_late_is_not_the_clients_fault(
    stage: Stage, app: HeldApp
) -> None:
    client = await stage.connect()
    sending = asyncio.create_task(client.send(POST))
    call = await app.call()
    (exchange,) = stage.exchanges
    await wait_until_async(lambda: exchange.flow.read_paused, "a pause: nobody takes the body")
    age(stage)
    assert (await call.receive())["more_body"]
    assert not exchange.flow.read_paused
    tick(stage)  # before the client could send a byte more
    assert stage.lent_count == 1
    assert await call.read_body() is not None
    await sending
    await call.reply(b"ok")
    assert (await client.read_reply()).status == 200


async def test_a_client_that_waits_for_100_is_not_slow(stage: Stage, app: HeldApp) -> None:
    request = request_bytes("POST", "/one", [("Expect", "100-continue")], b"hello")
    client = await stage.connect()
    await client.send(request[:-5])
    call = await app.call()
    age(stage)
    reading = asyncio.create_task(call.read_body())
    await turn()
    tick(stage)
    await client.send(b"hello")
    assert await reading == b"hello"
    await call.reply(b"ok")
    assert (await client.read_reply()).status == 200


async def test_a_client_that_got_100_has_the_time_of_a_body(stage: Stage, app: HeldApp) -> None:
    request = request_bytes("POST", "/one", [("Expect", "100-continue")], b"hello")
    client = await stage.connect()
    await client.send(request[:-5])
    reading = asyncio.create_task((await app.call()).read_body())
    await turn()
    age(stage)
    assert (await client.read_reply()).status == 408
    assert await reading is None


async def test_a_body_that_is_discarded_ends_the_connection_when_it_stands_still(
    stage: Stage, app: HeldApp
) -> None:
    client = await stage.connect()
    await client.send(POST[: HEAD_BYTES + 5])
    call = await app.call()
    await call.reply(b"early", status=401)
    assert (await client.read_reply()).status == 401
    age(stage)
    assert await client.read_to_end() == b""
    await stage.wait_back()


async def test_the_rest_of_a_body_has_its_own_time_after_an_early_reply(
    stage: Stage, app: HeldApp
) -> None:
    client = await stage.connect()
    await client.send(POST[: HEAD_BYTES + 5])
    call = await app.call()
    (exchange,) = stage.exchanges
    exchange.progress_at -= LONG_AGO_S
    await call.reply(b"early", status=401)
    tick(stage)
    assert (await client.read_reply()).status == 401
    await client.send(POST[HEAD_BYTES + 5 :])
    await serve_next(client, app, 1)


async def test_the_body_of_a_later_exchange_has_its_own_time(stage: Stage, app: HeldApp) -> None:
    client = await stage.connect()
    await serve_next(client, app, 0)
    await stage.wait_back()
    (exchange,) = stage.exchanges
    exchange.progress_at -= LONG_AGO_S
    await client.send(POST[:HEAD_BYTES])
    call = await app.call(1)
    tick(stage)
    sending = asyncio.create_task(client.send(POST[HEAD_BYTES:]))
    assert await call.read_body() == BODY
    await sending
    await call.reply(b"ok")
    assert (await client.read_reply()).status == 200


async def test_an_application_that_works_for_long_is_left_alone(stage: Stage, app: HeldApp) -> None:
    client = await stage.connect()
    await client.send(request_bytes("GET", "/one"))
    call = await app.call()
    for _ in range(3):
        age(stage)
    await call.reply(b"late")
    assert (await client.read_reply()).body == b"late"


async def test_only_exchanges_in_progress_are_looked_after(stage: Stage, app: HeldApp) -> None:
    client = await stage.connect()
    for number in range(3):
        await client.send(request_bytes("GET", "/one"))
        call = await app.call(number)
        assert len(sweep_of(stage)._exchanges) == 1
        await call.reply(b"ok")
        await client.read_reply()
        await stage.wait_back()
        assert not sweep_of(stage)._exchanges


async def test_a_loan_that_ended_otherwise_is_dropped_by_the_sweep(
    stage: Stage, app: HeldApp
) -> None:
    client = await stage.connect()
    await client.send(request_bytes("GET", "/one"))
    await app.call()
    (exchange,) = stage.exchanges
    client.close()
    await wait_until_async(lambda: not stage.front.connections, "the end of the connection")
    sweep_of(stage).add(exchange)
    tick(stage)
    assert not sweep_of(stage)._exchanges


async def test_the_sweep_ticks_on_until_it_is_stopped(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    sweep, ticks = sweep_of(stage), 0
    real = sweep._tick

    def counted() -> None:
        nonlocal ticks
        ticks += 1
        real()

    monkeypatch.setattr(sweep, "_tick", counted)
    real()
    await wait_until_async(lambda: ticks >= 2, "two ticks by the timer")
    sweep.stop()
    assert sweep._timer.cancelled()
