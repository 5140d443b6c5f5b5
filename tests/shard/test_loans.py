"""Loans on both loops, with a test as the router: BACK and REFUSE (lending rules 8, 13, 23)."""

from __future__ import annotations

import asyncio
import os
import socket
from collections.abc import AsyncIterator
from pathlib import Path
from types import SimpleNamespace
from typing import NoReturn

import pytest

from sessions.errors.unseen import LocalProtocolError
from sessions.lending.messages import Keep, Kind, LendFlag, Message, RefuseReason
from sessions.shard.exchange import LoanState
from tests.support.apps import pattern_of
from tests.support.held_app import HeldApp
from tests.support.loans_stage import SLOT, LoansStage, back, open_loans, serve
from tests.support.loops import BOTH_LOOPS, Backend, open_descriptors, turn
from tests.support.members import group_of
from tests.support.raw import request_bytes
from tests.support.waiting import wait_until_async

GET = request_bytes("GET", "/one")
BIG = request_bytes("POST", "/one", body=pattern_of("big", 100_000))


@pytest.fixture(params=BOTH_LOOPS)
def anyio_backend(request: pytest.FixtureRequest) -> Backend:
    backend: Backend = request.param
    return backend


@pytest.fixture
def app() -> HeldApp:
    return HeldApp()


@pytest.fixture
async def stage(tmp_path: Path, app: HeldApp) -> AsyncIterator[LoansStage]:
    async with open_loans(group_of(tmp_path), app) as opened:
        yield opened
        app.end_all()


@pytest.fixture
def broken_sockets(monkeypatch: pytest.MonkeyPatch) -> None:
    """A shard that cannot make a socket of the descriptor that it got."""

    def refuse(fileno: int) -> NoReturn:
        raise OSError(f"no socket of {fileno}")

    monkeypatch.setattr("sessions.shard.loans.socket", SimpleNamespace(socket=refuse))


# --- BACK (rule 8)


async def test_a_loan_with_a_descriptor_is_served_and_given_back_once(
    stage: LoansStage, app: HeldApp
) -> None:
    connection = stage.connection()
    await serve(stage, app, connection, 0, lends_copy=True)
    await turn(20)
    assert len(stage.router.messages) == 1
    assert stage.loans.parked_count == 1


async def test_later_loans_need_no_descriptor_and_open_none(
    stage: LoansStage, app: HeldApp
) -> None:
    connection = stage.connection()
    await serve(stage, app, connection, 0, lends_copy=True)
    before = open_descriptors()
    for number in range(1, 5):
        await serve(stage, app, connection, number, lends_copy=False)
    assert open_descriptors() == before
    assert stage.loans.parked_count == 1


async def test_a_parked_copy_reads_nothing_and_leaves_it_to_the_router(
    stage: LoansStage, app: HeldApp
) -> None:
    """Rule 1; also for the first loan, which uvloop begins to read only after `connection_made`."""
    connection = stage.connection()
    for number in range(3):
        await serve(stage, app, connection, number, lends_copy=number == 0)
        await connection.client.send(b"next")
        await turn(20)
        assert connection.read_router_side() == b"next"


@pytest.mark.parametrize("size", [65_000, 70_000, 300_000])
async def test_a_parked_copy_reads_nothing_after_a_body_that_came_with_its_first_loan(
    stage: LoansStage, app: HeldApp, size: int
) -> None:
    connection = stage.connection()
    stage.lend(request_bytes("POST", "/one", body=bytes(size)), 1, of=connection)
    call = await app.call()
    assert await call.read_body() == bytes(size)
    await call.reply(b"ok")
    await stage.answer()
    await connection.client.send(b"next")
    await turn(20)
    assert connection.read_router_side() == b"next"


async def test_a_parked_copy_reads_nothing_after_much_that_came_behind_its_first_request(
    stage: LoansStage, app: HeldApp
) -> None:
    connection = stage.connection()
    behind = pattern_of("behind", 200_000)
    stage.lend(GET + behind, 1, of=connection)
    call = await app.call()
    await connection.client.send(b"later")
    await turn(20)
    await call.reply(b"ok")
    message = await stage.answer()
    assert message.payload + connection.read_router_side() == behind + b"later"
    await connection.client.send(b"next")
    await turn(20)
    assert connection.read_router_side() == b"next"


async def test_a_parked_copy_costs_no_poll_when_its_client_leaves(
    stage: LoansStage, app: HeldApp
) -> None:
    connection = stage.connection()
    await serve(stage, app, connection, 0, lends_copy=True)
    connection.client.reset()
    await turn(50)
    assert stage.loans.parked_count == 1, "only the router's word ends it"
    assert len(stage.router.messages) == 1


async def test_what_follows_an_exchange_comes_back_with_it(stage: LoansStage, app: HeldApp) -> None:
    connection = stage.connection()
    behind = pattern_of("behind", 70_000)
    stage.lend(GET + behind, 1, of=connection)
    await (await app.call()).reply(b"ok")
    assert await stage.answer() == back(1, behind)


async def test_a_client_that_leaves_while_lent_is_a_loss_told_once(
    stage: LoansStage, app: HeldApp
) -> None:
    connection = stage.connection()
    before = open_descriptors()
    stage.lend(GET, 5, of=connection)
    call = await app.call()
    connection.client.close()
    assert await stage.answer() == back(5, keep=Keep.LOST)
    assert stage.loans.parked_count == 0
    await call.reply(b"late")
    await turn(20)
    assert len(stage.router.messages) == 1
    assert open_descriptors() == before - 1  # the client's own


async def test_a_reply_that_ends_the_connection_is_a_loss_told_after_it_left(
    stage: LoansStage, app: HeldApp
) -> None:
    """Rule 17: the router shuts down writing by this word, which would cut the reply."""
    connection = stage.connection(receive_buffer_bytes=4608)
    stage.lend(GET, 1, of=connection)
    answer = pattern_of("big", 8 << 20)
    await (await app.call()).reply(answer, headers=[(b"connection", b"close")])
    await turn(50)
    assert not stage.router.messages
    assert (await connection.client.read_reply()).body == answer
    assert await stage.answer() == back(1, keep=Keep.LOST)
    assert stage.loans.parked_count == 0


async def test_a_parked_copy_that_dies_sends_no_word_and_is_refused_later(
    stage: LoansStage, app: HeldApp
) -> None:
    connection = stage.connection()
    await serve(stage, app, connection, 0, lends_copy=True)
    stage.shard.exchanges[0].transport.abort()
    await wait_until_async(lambda: not stage.loans.parked_count, "the copy to be forgotten")
    assert len(stage.router.messages) == 1
    stage.lend(GET, 2)
    answer = await stage.answer(1)
    assert (answer.kind, answer.argument) == (Kind.REFUSE, RefuseReason.NOT_PARKED)


async def test_an_adoption_that_fails_is_a_loss(
    stage: LoansStage, app: HeldApp, monkeypatch: pytest.MonkeyPatch
) -> None:
    class BrokenLoop:
        create_task = asyncio.get_running_loop().create_task

        async def connect_accepted_socket(self, _factory: object, _sock: socket.socket) -> None:
            raise OSError("not today")

    connection = stage.connection()
    before = open_descriptors()
    monkeypatch.setattr(stage.loans, "_loop", BrokenLoop())
    stage.lend(GET, 9, of=connection)
    assert await stage.answer() == back(9, keep=Keep.LOST)
    assert stage.loans.parked_count == 0
    assert open_descriptors() == before
    assert not app.calls


async def test_a_released_adoption_that_fails_sends_no_word(
    stage: LoansStage, monkeypatch: pytest.MonkeyPatch
) -> None:
    gate = asyncio.Event()

    class BrokenLoop:
        create_task = asyncio.get_running_loop().create_task

        async def connect_accepted_socket(self, _factory: object, _sock: socket.socket) -> None:
            await gate.wait()
            raise OSError("not today")

    connection = stage.connection()
    before = open_descriptors()
    monkeypatch.setattr(stage.loans, "_loop", BrokenLoop())
    stage.lend(GET, 9, of=connection)
    stage.release()
    await wait_until_async(lambda: open_descriptors() > before, "the descriptor")
    await turn(20)
    gate.set()
    await wait_until_async(lambda: not stage.loans._adoptions, "the end of the adoption")
    assert not stage.router.messages
    assert open_descriptors() == before


# --- REFUSE (rule 13)


@pytest.mark.parametrize("data", [GET, BIG], ids=["small", "parts"])
async def test_a_loan_whose_descriptor_did_not_come_is_refused_with_all_its_bytes(
    stage: LoansStage, app: HeldApp, data: bytes
) -> None:
    stage.lend(data, 4, flags=LendFlag.DESCRIPTOR)
    head_bytes = data.index(b"\r\n\r\n") + 4
    assert await stage.answer() == Message(
        Kind.REFUSE, RefuseReason.NO_DESCRIPTOR, SLOT, head_bytes, 4, data
    )
    assert not app.calls
    assert stage.loans.parked_count == 0


@pytest.mark.parametrize("data", [GET, BIG], ids=["small", "parts"])
async def test_a_loan_of_a_connection_that_is_not_here_is_refused_with_all_its_bytes(
    stage: LoansStage, app: HeldApp, data: bytes
) -> None:
    stage.lend(data, 4)
    head_bytes = data.index(b"\r\n\r\n") + 4
    assert await stage.answer() == Message(
        Kind.REFUSE, RefuseReason.NOT_PARKED, SLOT, head_bytes, 4, data
    )
    assert not app.calls


async def test_a_descriptor_that_becomes_no_socket_is_closed_and_refused_with_all_its_bytes(
    stage: LoansStage, app: HeldApp, broken_sockets: None
) -> None:
    connection = stage.connection()
    before = open_descriptors()
    stage.lend(GET, 4, of=connection)
    assert await stage.answer() == Message(
        Kind.REFUSE, RefuseReason.NO_DESCRIPTOR, SLOT, len(GET), 4, GET
    )
    assert stage.loans.parked_count == 0
    assert open_descriptors() == before
    assert not app.calls


async def test_a_released_descriptor_that_becomes_no_socket_is_closed_without_a_word(
    stage: LoansStage, broken_sockets: None
) -> None:
    connection = stage.connection()
    before = open_descriptors()
    lend = Message(Kind.LEND, LendFlag.DESCRIPTOR, SLOT, len(GET), 4, GET)
    stage.loans.on_message(lend, os.dup(connection.router_side.fileno()))
    stage.loans.on_message(Message(Kind.RELEASE, 0, SLOT, 0, 0, b""), None)
    await wait_until_async(lambda: not stage.loans._adoptions, "the end of the adoption")
    await turn(20)
    assert not stage.router.messages
    assert open_descriptors() == before


# --- uvicorn


async def test_parked_copies_are_no_connections_of_uvicorn(stage: LoansStage, app: HeldApp) -> None:
    connection = stage.connection()
    state = stage.shard.server.server_state
    stage.lend(GET, 1, of=connection)
    call = await app.call()
    (exchange,) = stage.shard.exchanges
    assert state.connections == {exchange}
    await call.reply(b"ok")
    await stage.answer()
    assert exchange.loan is LoanState.PARKED
    assert not state.connections
    assert state.total_requests == 1
    stage.lend(GET, 2)
    await app.call(1)
    assert state.connections == {exchange}


async def test_an_adopted_descriptor_is_close_on_exec(stage: LoansStage, app: HeldApp) -> None:
    connection = stage.connection()
    stage.lend(GET, 1, of=connection)
    await app.call()
    (exchange,) = stage.shard.exchanges
    descriptor = exchange.transport.get_extra_info("socket").fileno()
    assert not os.get_inheritable(descriptor)


# --- a broken router


@pytest.mark.parametrize("kind", [Kind.HELLO, Kind.BACK, Kind.REFUSE, 99])
async def test_a_word_that_no_router_says_ends_the_channel(stage: LoansStage, kind: int) -> None:
    stage.router.channel.send(Message(kind, 0, 0, 0, 0, b""))
    await wait_until_async(lambda: stage.router.ends > 0, "the end of the channel")
    with pytest.raises(LocalProtocolError, match="from the router"):
        stage.loans.on_message(Message(kind, 0, 0, 0, 0, b""), None)


async def test_a_head_with_a_second_request_in_it_is_executed_by_nobody(
    stage: LoansStage, app: HeldApp
) -> None:
    connection = stage.connection()
    stage.lend(GET + GET, 1, of=connection, head_bytes=2 * len(GET))
    assert (await connection.client.read_reply()).status == 400
    assert await stage.answer() == back(1, keep=Keep.LOST)
    assert len(app.calls) <= 1
    assert all([await call.read_body() is None for call in app.calls])
