"""The lone shard that lends to itself: when it takes requests, and whose exchange is whose."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path
from typing import cast

import pytest

from sessions.errors.group import NotReadyError
from sessions.errors.unseen import LocalProtocolError
from sessions.lending.connection import Connection
from sessions.lending.place import Place
from sessions.shard.exchange import LoanState
from sessions.shard.house import House
from tests.support.fake_links import FakeConnection, head_of
from tests.support.fronts import error_code_of
from tests.support.held_app import HeldApp
from tests.support.loops import BOTH_LOOPS, Backend, turn
from tests.support.members import group_of
from tests.support.raw import request_bytes
from tests.support.stages import Stage, asked, open_stage, serve_next
from tests.support.waiting import wait_until_async

GET = request_bytes("GET", "/one")


@pytest.fixture(params=BOTH_LOOPS)
def anyio_backend(request: pytest.FixtureRequest) -> Backend:
    backend: Backend = request.param
    return backend


@pytest.fixture
async def stage(tmp_path: Path, app: HeldApp) -> AsyncIterator[Stage]:
    """A lone shard only."""
    async with open_stage(group_of(tmp_path), app, has_router=False) as opened:
        yield opened
        app.end_all()


def house_of(stage: Stage) -> House:
    assert stage.house is not None
    return stage.house


async def test_nobody_is_served_before_the_application_has_started(tmp_path: Path) -> None:
    house = House(group_of(tmp_path))
    with pytest.raises(NotReadyError, match="starting"):
        house.choose(None)
    with pytest.raises(LocalProtocolError):
        house.lend(cast("Connection", FakeConnection()), Place(shard=0), head_of(), GET)
    house.stop()


async def test_nobody_is_served_while_draining(stage: Stage, app: HeldApp) -> None:
    client = await stage.connect()
    await serve_next(client, app, 0)
    house_of(stage).close()
    reply = await client.ask(GET)
    assert (reply.status, error_code_of(reply)) == (503, "not_ready")
    assert len(app.calls) == 1


async def test_a_loan_that_began_before_is_finished_while_draining(
    stage: Stage, app: HeldApp
) -> None:
    client, call = await asked(stage, app, GET)
    house_of(stage).close()
    assert stage.lent_count == 1
    await call.reply(b"ok")
    assert (await client.read_reply()).body == b"ok"


async def test_the_last_reply_of_a_group_that_was_told_to_stop_says_close(
    stage: Stage, app: HeldApp
) -> None:
    client = await stage.connect()
    await serve_next(client, app, 0)
    stage.group.board.set_draining()
    await client.send(GET)
    call = await app.call(1)
    await call.reply(b"last")
    reply = await client.read_reply()
    assert (reply.body, reply.header("connection")) == (b"last", "close")
    assert await client.read_to_end() == b""


async def test_one_exchange_serves_all_loans_of_a_connection(stage: Stage, app: HeldApp) -> None:
    client = await stage.connect()
    seen = set()
    for number in range(3):
        await serve_next(client, app, number)
        await stage.wait_back()
        (exchange,) = stage.exchanges
        seen.add(id(exchange))
        assert exchange.loan is LoanState.PARKED
    assert len(seen) == 1
    assert not stage.server_state.connections
    assert stage.server_state.total_requests == 3


async def test_exchanges_end_with_their_connections(stage: Stage, app: HeldApp) -> None:
    clients = [await stage.connect() for _ in range(3)]
    for number, client in enumerate(clients):
        await serve_next(client, app, number)
    await stage.wait_back()
    assert len(stage.exchanges) == 3
    for client in clients:
        client.close()
    await wait_until_async(lambda: not stage.exchanges, "no exchange")
    assert not stage.front.connections


async def test_the_late_end_of_an_exchange_does_not_forget_the_next_one_of_its_slot(
    stage: Stage, app: HeldApp
) -> None:
    client = await stage.connect()
    await serve_next(client, app, 0)
    await stage.wait_back()
    (old,) = stage.exchanges
    client.close()
    await wait_until_async(lambda: not stage.front.connections, "the end of the connection")
    again = await stage.connect()
    await serve_next(again, app, 1)
    (new,) = stage.exchanges
    assert (new is not old, new.slot) == (True, old.slot)
    house_of(stage).on_lost(old)
    assert stage.exchanges == [new]
    await serve_next(again, app, 2)


async def test_an_application_that_closes_ends_the_connection_once(
    stage: Stage, app: HeldApp
) -> None:
    client, call = await asked(stage, app, GET)
    await call.reply(b"bye", headers=[(b"connection", b"close")])
    assert (await client.read_reply()).body == b"bye"
    assert await client.read_to_end() == b""
    await turn()
    assert stage.lent_count == 0
    assert not stage.exchanges, "a closed loan leaves no exchange for a next one"
    client.close()
    await wait_until_async(lambda: not stage.front.connections, "the end of the connection")


async def test_a_client_that_is_gone_when_its_loan_closes_is_no_error(
    stage: Stage, app: HeldApp
) -> None:
    client, call = await asked(stage, app, GET)
    client.reset()
    await call.reply(b"bye", headers=[(b"connection", b"close")])
    await wait_until_async(lambda: not stage.front.connections, "the end of the connection")
    assert stage.front.slots.has_free
    assert stage.lent_count == 0
