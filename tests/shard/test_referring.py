"""Requests that go back because another shard may hold what their bodies name (rule 14)."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from sessions.lending.messages import Claimed, Keep, Kind, LendFlag, Message, RefuseReason
from sessions.routing.claim_keys import claim_key
from sessions.routing.kinds import BodyNaming, Ownership, SessionKind
from sessions.shard.exchange import LoanState
from tests.support.held_app import HeldApp
from tests.support.loans_stage import SLOT, LoansStage, back, open_loans
from tests.support.loops import BOTH_LOOPS, Backend, turn
from tests.support.members import group_of
from tests.support.raw import request_bytes
from tests.support.waiting import wait_until_async

BODY = BodyNaming(field="id", seed_routes=frozenset({"/seed"}), close_routes=frozenset())
KIND = SessionKind(name="environment", ownership=Ownership.CLAIM, body=BODY)
KEY = claim_key("environment", "s1")
NAMING = b'{"id": "s1"}'
SEED = request_bytes("POST", "/seed", body=NAMING)
HEAD_BYTES = len(SEED) - len(NAMING)
NEXT = b"GET /next HTTP/1.1\r\n"


@pytest.fixture(params=BOTH_LOOPS)
def anyio_backend(request: pytest.FixtureRequest) -> Backend:
    backend: Backend = request.param
    return backend


@pytest.fixture
def app() -> HeldApp:
    return HeldApp()


@pytest.fixture
async def stage(tmp_path: Path, app: HeldApp) -> AsyncIterator[LoansStage]:
    async with open_loans(group_of(tmp_path), app, (KIND,)) as opened:
        yield opened
        app.end_all()


def not_held(generation: int, request: bytes, head_bytes: int = HEAD_BYTES) -> Message:
    payload = KEY + request
    return Message(Kind.REFUSE, RefuseReason.NOT_HELD, SLOT, head_bytes, generation, payload)


def loan_of(stage: LoansStage) -> LoanState:
    (exchange,) = stage.shard.exchanges
    return exchange.loan


async def test_a_request_goes_back_with_all_its_bytes_and_the_copy_is_parked(
    stage: LoansStage, app: HeldApp
) -> None:
    connection = stage.connection()
    stage.lend(SEED + NEXT, 1, of=connection)
    assert await stage.answer() == not_held(1, SEED + NEXT)
    assert loan_of(stage) is LoanState.PARKED
    assert not app.calls
    await connection.client.send(b"more")
    await turn(20)
    assert connection.read_router_side() == b"more"


async def test_bytes_that_the_shard_read_itself_go_back_too(stage: LoansStage) -> None:
    connection = stage.connection()
    stage.lend(SEED[:-5], 1, of=connection)
    await turn(20)
    assert not stage.router.messages
    await connection.client.send(SEED[-5:] + NEXT)
    assert await stage.answer() == not_held(1, SEED + NEXT)


async def test_a_chunked_body_goes_back_as_it_came(stage: LoansStage) -> None:
    connection = stage.connection()
    request = request_bytes("POST", "/seed", body=NAMING, chunk_bytes=3)
    head_bytes = request.index(b"\r\n\r\n") + 4
    stage.lend(request[:-7], 1, of=connection)
    await connection.client.send(request[-7:])
    assert await stage.answer() == not_held(1, request, head_bytes)


async def test_the_same_request_is_served_when_it_comes_for_good(
    stage: LoansStage, app: HeldApp
) -> None:
    connection = stage.connection()
    stage.lend(SEED, 1, of=connection)
    await stage.answer()
    stage.lend(SEED, 2, flags=LendFlag.FINAL)
    call = await app.call(0)
    assert await call.read_body() == NAMING
    await call.reply(b"seeded")
    assert (await connection.client.read_reply()).body == b"seeded"
    assert await stage.answer(1) == back(2)
    call.end()


async def test_a_request_that_comes_for_good_at_once_is_served(
    stage: LoansStage, app: HeldApp
) -> None:
    connection = stage.connection()
    stage.lend(SEED, 1, of=connection, flags=LendFlag.FINAL | LendFlag.DESCRIPTOR)
    call = await app.call(0)
    await call.reply(b"ok")
    assert await stage.answer() == back(1)
    call.end()
    stage.lend(SEED, 2)
    assert await stage.answer(1) == not_held(2, SEED), "only that loan was for good"


async def test_what_is_held_here_is_served(stage: LoansStage, app: HeldApp) -> None:
    stage.shard.claims._requests[1] = KEY, _future()
    stage.shard.claims.on_claimed(Message(Kind.CLAIMED, Claimed.GRANTED, 0, 0, 1, b""))
    connection = stage.connection()
    stage.lend(SEED, 1, of=connection)
    call = await app.call(0)
    assert await call.read_body() == NAMING
    await call.reply(b"ok")
    assert await stage.answer() == back(1)
    assert "sessile.referral" not in call.scope
    call.end()


def _future() -> asyncio.Future[bool]:
    return asyncio.get_running_loop().create_future()


async def test_a_client_that_waits_for_100_gets_it_and_its_request_goes_back(
    stage: LoansStage,
) -> None:
    connection = stage.connection()
    request = request_bytes("POST", "/seed", [("Expect", "100-continue")], NAMING)
    head_bytes = len(request) - len(NAMING)
    stage.lend(request[:head_bytes], 1, of=connection)
    loop = asyncio.get_running_loop()
    assert await loop.sock_recv(connection.client.socket, 100) == b"HTTP/1.1 100 Continue\r\n\r\n"
    await connection.client.send(NAMING)
    assert await stage.answer() == not_held(1, request, head_bytes)


@pytest.mark.parametrize("stays", [True, False])
async def test_a_request_goes_back_only_when_the_100_has_left(
    stage: LoansStage, monkeypatch: pytest.MonkeyPatch, *, stays: bool
) -> None:
    connection = stage.connection()
    stage.lend(SEED[:-5], 1, of=connection)
    await turn(20)
    (exchange,) = stage.shard.exchanges
    has_left = asyncio.Event()
    monkeypatch.setattr(exchange.transport, "get_write_buffer_size", lambda: 25)
    monkeypatch.setattr(exchange.flow, "drain", has_left.wait)
    await connection.client.send(SEED[-5:])
    await turn(50)
    assert not stage.router.messages
    if not stays:
        exchange.transport.abort()
        assert (await stage.answer()).kind == Kind.BACK
    has_left.set()
    await turn(20)
    answers = [not_held(1, SEED)] if stays else stage.router.messages[:1]
    assert stage.router.messages == answers


async def test_a_client_that_leaves_before_the_body_ends_is_a_loss(stage: LoansStage) -> None:
    connection = stage.connection()
    stage.lend(SEED[:-5], 1, of=connection)
    await turn(20)
    connection.client.close()
    assert (await stage.answer()).kind == Kind.BACK
    assert (await stage.answer()).argument == 0


async def test_a_client_that_leaves_when_its_request_would_go_back_is_no_fault_of_ours(
    stage: LoansStage, caplog: pytest.LogCaptureFixture
) -> None:
    connection = stage.connection()
    stage.lend(SEED[:-5], 1, of=connection)
    await turn(20)
    (exchange,) = stage.shard.exchanges
    exchange.data_received(SEED[-5:])  # and its end is read in the same turn of the loop
    exchange.transport.close()
    assert await stage.answer() == back(1, keep=Keep.LOST)
    await turn(20)
    assert [record for record in caplog.records if record.levelno >= logging.ERROR] == []


async def test_a_body_that_is_framed_at_length_is_served_here(
    stage: LoansStage, app: HeldApp
) -> None:
    """What may go back is bounded, whatever frames it."""
    body = NAMING[:-1] + b" " * 60_000 + b"}"
    request = request_bytes("POST", "/seed", body=body, chunk_bytes=1)
    assert len(request) > 5 * 65536
    connection = stage.connection()
    stage.lend(request[:1000], 1, of=connection)
    await connection.client.send(request[1000:])
    call = await app.call(0)
    assert await call.read_body() == body
    await call.reply(b"ok")
    assert (await connection.client.read_reply()).body == b"ok"
    call.end()


async def test_other_requests_are_served_as_ever(stage: LoansStage, app: HeldApp) -> None:
    connection = stage.connection()
    stage.lend(request_bytes("POST", "/other", body=NAMING), 1, of=connection)
    call = await app.call(0)
    await call.reply(b"ok")
    assert await stage.answer() == back(1)
    call.end()
    await wait_until_async(lambda: loan_of(stage) is LoanState.PARKED, "the copy to be parked")


# --- reserved keys


def is_reserved(stage: LoansStage) -> bool:
    return KEY in stage.shard.claims._reserved


@pytest.mark.parametrize("flags", [LendFlag.RESERVED, LendFlag.RESERVED | LendFlag.FINAL])
async def test_a_key_is_reserved_while_the_loan_lasts(
    stage: LoansStage, app: HeldApp, flags: LendFlag
) -> None:
    connection = stage.connection()
    request = SEED if flags & LendFlag.FINAL else request_bytes("POST", "/x", body=NAMING)
    stage.lend(
        KEY + request,
        1,
        of=connection,
        flags=flags | LendFlag.DESCRIPTOR,
        head_bytes=request.index(b"\r\n\r\n") + 4,
    )
    call = await app.call(0)
    assert await call.read_body() == NAMING
    assert is_reserved(stage)
    await call.reply(b"ok")
    assert await stage.answer() == back(1)
    assert not is_reserved(stage)
    call.end()


async def test_a_key_is_reserved_until_its_client_is_gone(stage: LoansStage, app: HeldApp) -> None:
    connection = stage.connection()
    flags = LendFlag.RESERVED | LendFlag.FINAL | LendFlag.DESCRIPTOR
    stage.lend(KEY + SEED, 1, of=connection, flags=flags, head_bytes=HEAD_BYTES)
    await app.call(0)
    connection.client.close()
    assert await stage.answer() == back(1, keep=Keep.LOST)
    assert not is_reserved(stage)


async def test_a_key_is_reserved_until_the_router_ends_the_connection(
    stage: LoansStage, app: HeldApp
) -> None:
    connection = stage.connection()
    flags = LendFlag.RESERVED | LendFlag.FINAL | LendFlag.DESCRIPTOR
    stage.lend(KEY + SEED, 1, of=connection, flags=flags, head_bytes=HEAD_BYTES)
    await app.call(0)
    assert is_reserved(stage)
    stage.release()
    await wait_until_async(lambda: not is_reserved(stage), "the key to be free")


async def test_a_loan_that_is_refused_reserves_nothing(stage: LoansStage) -> None:
    stage.lend(KEY + SEED, 1, flags=LendFlag.RESERVED, head_bytes=HEAD_BYTES)
    refused = Message(Kind.REFUSE, RefuseReason.NOT_PARKED, SLOT, HEAD_BYTES, 1, SEED)
    assert await stage.answer() == refused
    assert not is_reserved(stage)


async def test_a_loan_that_goes_back_reserves_nothing(stage: LoansStage) -> None:
    """Its head named one session, and its body another."""
    other = claim_key("environment", "s2")
    connection = stage.connection()
    flags = LendFlag.RESERVED | LendFlag.DESCRIPTOR
    stage.lend(other + SEED, 1, of=connection, flags=flags, head_bytes=HEAD_BYTES)
    assert await stage.answer() == not_held(1, SEED)
    assert not stage.shard.claims._reserved
