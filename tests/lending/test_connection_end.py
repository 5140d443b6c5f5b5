"""The end of a client connection on both loops: lingering, time, deaths."""

from __future__ import annotations

import asyncio
import os

import pytest

from sessions.errors.group import GroupDyingError, NotReadyError
from sessions.lending.cells import CellState
from sessions.lending.connection import LINGER_QUIET_S, LINGER_TOTAL_S
from sessions.lending.group import Group
from sessions.lending.slots import SlotEvent, SlotState
from tests.support.fronts import FrontStage, error_code_of, open_front
from tests.support.loops import BOTH_LOOPS, Backend, turn
from tests.support.raw import request_bytes
from tests.support.waiting import wait_until_async

LIVE = request_bytes("GET", "/livez")
READY = request_bytes("GET", "/readyz")
ASK = request_bytes("GET", "/sessions/a/x")
POST = request_bytes("POST", "/sessions/a/x", body=b"hello")


@pytest.fixture(params=BOTH_LOOPS)
def anyio_backend(request: pytest.FixtureRequest) -> Backend:
    backend: Backend = request.param
    return backend


# --- ends


async def test_a_reply_reaches_a_client_that_is_still_sending(stage: FrontStage) -> None:
    """Rule 17: closing at once would answer its bytes with a reset, which eats the reply."""
    client = await stage.connect()
    body_bytes = 8 << 20
    head = request_bytes("POST", "/livez", [("Content-Length", str(body_bytes))]).replace(
        b"Content-Length: 0\r\n", b""
    )
    stage.dispatcher.refusal = NotReadyError("starting")
    await client.send(head)
    await client.send(bytes(body_bytes), piece_bytes=65536)
    assert (await client.read_reply()).status == 503
    assert await client.read_to_end() == b""


async def test_an_ended_connection_is_closed_when_its_client_is_quiet(stage: FrontStage) -> None:
    client = await stage.connect()
    await client.ask(request_bytes("GET", "/livez", [("Connection", "close")]) + b"more")
    connection = await stage.connection()
    assert connection._buffer == b"", "nothing is kept any more"
    await stage.pass_time(LINGER_QUIET_S - 0.1)
    await client.send(b"more")
    await wait_until_async(
        lambda: connection.deadline == stage.clock.now + LINGER_QUIET_S, "a later deadline"
    )
    await stage.pass_time(LINGER_QUIET_S - 0.1)
    assert stage.front.connections
    await stage.pass_time(0.2)
    await stage.wait_empty()


async def test_an_ended_connection_is_closed_although_its_client_never_stops(
    stage: FrontStage,
) -> None:
    client = await stage.connect()
    await client.ask(request_bytes("GET", "/livez", [("Connection", "close")]))
    connection = await stage.connection()
    end = stage.clock.now + LINGER_TOTAL_S
    while connection.deadline < end:
        before = connection.deadline
        await stage.pass_time(LINGER_QUIET_S - 0.5)
        await client.send(b"more")
        await wait_until_async(lambda last=before: connection.deadline > last, "a later deadline")  # type: ignore[misc]
    await client.send(b"more")
    await turn(20)
    assert connection.deadline == end
    await stage.pass_time(end - stage.clock.now)
    await stage.wait_empty()


async def test_closing_tells_every_holder_before_the_number_is_free(stage: FrontStage) -> None:
    client, connection = await stage.lent(ASK)
    connection.take_back(0, b"", kept=True)
    stage.dispatcher.owner = 2
    await client.send(ASK)
    await stage.loan(1)
    connection.take_back(2, b"", kept=True)
    client.close()
    await stage.wait_empty()
    assert stage.dispatcher.released == [(connection.slot.number, [0, 2])]
    assert stage.dispatcher.forgotten == [connection]
    assert connection.slot.state is SlotState.CLOSED
    other = await stage.connect()
    await other.send(ASK)
    again = await stage.loan(2)
    assert again.connection.slot.number == connection.slot.number
    assert again.connection.slot.generation == 3
    assert again.needs_descriptor


async def test_a_connection_that_is_lost_while_it_is_lent_is_released(stage: FrontStage) -> None:
    _client, connection = await stage.lent(ASK)
    connection.transport.abort()
    await stage.wait_empty()
    assert stage.dispatcher.released == [(connection.slot.number, [0])]


async def test_a_half_closed_client_gets_the_reply_that_is_written(stage: FrontStage) -> None:
    client = await stage.connect()
    await client.send(LIVE)
    client.half_close()
    assert (await client.read_reply()).status == 200
    assert await client.read_to_end() == b""
    await stage.wait_empty()


async def test_a_client_that_leaves_in_the_middle_of_a_head_gets_nothing(stage: FrontStage) -> None:
    client = await stage.connect()
    await client.send(ASK[:-1])
    client.half_close()
    assert await client.read_to_end() == b""
    await stage.wait_empty()
    assert not stage.dispatcher.loans


# --- time


async def test_a_head_that_does_not_end_in_time_gets_408(stage: FrontStage) -> None:
    client = await stage.connect()
    await client.send(b"G")
    connection = await stage.connection()
    await wait_until_async(lambda: bool(connection._buffer), "the first byte")
    await stage.pass_time(14.9)
    await client.send(b"ET")
    await wait_until_async(lambda: connection._buffer == b"GET", "the next bytes")
    assert stage.front.connections
    await stage.pass_time(0.2)
    reply = await client.read_reply()
    assert (reply.status, error_code_of(reply)) == (408, "head_timeout")
    assert reply.headers[-1] == ("connection", "close")
    assert await client.read_to_end() == b""


@pytest.mark.parametrize("before", [b"", LIVE, b"\r\n"], ids=["new", "served", "crlf"])
async def test_an_idle_connection_is_closed_in_silence(stage: FrontStage, before: bytes) -> None:
    client = await stage.connect()
    connection = await stage.connection()
    if before:
        await client.send(before)
        await wait_until_async(lambda: connection.deadline > 0, "bytes")
    if before == LIVE:
        await client.read_reply()
    await turn(20)
    await stage.pass_time(74.9)
    assert connection.slot.state is SlotState.HEAD
    await stage.pass_time(0.2)
    assert await client.read_to_end() == b""


async def test_a_head_that_came_behind_another_has_the_time_of_a_head(stage: FrontStage) -> None:
    client = await stage.connect()
    await client.send(LIVE + b"GET /slow")
    await client.read_reply()
    await stage.pass_time(15.1)
    assert (await client.read_reply()).status == 408


@pytest.mark.parametrize(("leftover", "limit_s"), [(b"", 75.0), (b"GE", 15.0)])
async def test_a_connection_that_came_back_waits_anew(
    stage: FrontStage, leftover: bytes, limit_s: float
) -> None:
    client, connection = await stage.lent(ASK)
    await stage.pass_time(1000)
    connection.take_back(0, leftover, kept=True)
    await stage.pass_time(limit_s - 0.1)
    assert connection.slot.state is SlotState.HEAD
    await stage.pass_time(0.2)
    if leftover:
        assert (await client.read_reply()).status == 408
    assert await client.read_to_end() == b""


async def test_a_lent_connection_has_no_deadline_here(stage: FrontStage) -> None:
    client, connection = await stage.lent(ASK)
    idle = await stage.connect()
    await wait_until_async(lambda: len(stage.front.connections) == 2, "the idle connection")
    await stage.pass_time(1000)
    assert connection.slot.state is SlotState.LENT
    assert await idle.read_to_end() == b"", "the sweep went on to the others"
    connection.take_back(0, b"", kept=True)
    assert (await client.ask(LIVE)).status == 200


@pytest.mark.parametrize("is_reading_at_last", [False, True])
async def test_a_client_that_reads_nothing_is_ended_at_last(
    group: Group, *, is_reading_at_last: bool
) -> None:
    async with open_front(group, send_buffer_bytes=4608) as stage:
        client = await stage.connect(receive_buffer_bytes=4608)
        sending = asyncio.create_task(client.send(request_bytes("GET", "/healthz") * 4000))
        connection = await stage.connection()
        await wait_until_async(lambda: not connection.is_flushed, "a reply that does not leave")
        await stage.pass_time(75.1)
        assert connection.slot.state is SlotState.ENDING
        sending.cancel()
        await asyncio.gather(sending, return_exceptions=True)
        if is_reading_at_last:
            rest = await client.read_to_end()
            assert rest.count(b"HTTP/1.1 200 OK") == rest.count(b"HTTP/1.1 ") > 1, "no 408"
        else:
            await stage.pass_time(LINGER_QUIET_S)
            await stage.wait_empty()


# --- deaths


async def test_a_client_whose_shard_died_gets_a_status_and_the_end(stage: FrontStage) -> None:
    client, connection = await stage.lent(ASK)
    copy = os.dup(connection.descriptor)
    try:
        event = connection.slot.judge_death(0, CellState.AWAITING)
        assert event is SlotEvent.DIED_AWAITING
        connection.answer_dead(GroupDyingError("shard 0 died"), stage.dispatcher.loans[0].head)
        reply = await client.read_reply()
        assert (reply.status, error_code_of(reply)) == (503, "group_dying")
        assert reply.header("connection") == "close"
        assert await client.read_to_end() == b""
    finally:
        os.close(copy)


async def test_a_connection_goes_on_after_a_death_that_did_not_concern_it(
    stage: FrontStage,
) -> None:
    client, connection = await stage.lent(ASK)
    assert connection.slot.judge_death(0, CellState.COMPLETE) is SlotEvent.DIED_COMPLETE
    connection.go_on(b"")
    assert (await client.ask(LIVE)).status == 200


async def test_a_request_that_no_shard_got_is_lent_again_after_a_death(stage: FrontStage) -> None:
    client, connection = await stage.lent(POST)
    payload = stage.dispatcher.loans[0].payload
    assert connection.slot.judge_death(0, CellState.AWAITING) is SlotEvent.DIED_AWAITING
    connection.go_on(payload)
    again = await stage.loan(1)
    assert again.payload == payload
    assert again.needs_descriptor
    connection.take_back(0, b"", kept=True)
    assert (await client.ask(LIVE)).status == 200


async def test_a_client_that_asked_by_head_gets_no_body_of_a_death(stage: FrontStage) -> None:
    client, connection = await stage.lent(request_bytes("HEAD", "/sessions/a/x"))
    connection.slot.judge_death(0, CellState.AWAITING)
    connection.answer_dead(GroupDyingError("shard 0 died"), stage.dispatcher.loans[0].head)
    assert (await client.read_reply(head_only=True)).status == 503
    assert await client.read_to_end() == b""


async def test_a_cut_reaches_the_client_although_a_copy_is_open(stage: FrontStage) -> None:
    """Rule 18; with a mere close the copy would keep the client waiting."""
    client, connection = await stage.lent(ASK)
    copy = os.dup(connection.descriptor)
    try:
        os.write(copy, b"HTTP/1.1 200 OK\r\ncontent-length: 10\r\n\r\nhalf")
        connection.slot.judge_death(0, CellState.REPLYING)
        connection.cut()
        assert (await client.read_to_end()).endswith(b"\r\n\r\nhalf")
        await stage.wait_empty()
    finally:
        os.close(copy)


async def test_a_cut_needs_no_descriptor(
    stage: FrontStage, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(_descriptor: int) -> int:
        raise OSError("too many open files")

    client, connection = await stage.lent(ASK)
    connection.slot.judge_death(0, CellState.REPLYING)
    monkeypatch.setattr(os, "dup", fail)
    connection.cut()
    assert await client.read_to_end() == b""


async def test_a_cut_of_a_client_that_is_gone_is_no_error(stage: FrontStage) -> None:
    client, connection = await stage.lent(ASK)
    client.reset()
    connection.slot.judge_death(0, CellState.REPLYING)
    connection.cut()
    await stage.wait_empty()


async def test_a_head_that_has_begun_is_refused_when_it_is_not_waited_for(
    stage: FrontStage,
) -> None:
    client = await stage.connect()
    await client.send(ASK[:5])
    connection = await stage.connection()
    await wait_until_async(lambda: bool(connection._buffer), "the first bytes")
    stage.front.refuse_begun_heads(GroupDyingError("shard 0 died"))
    reply = await client.read_reply()
    assert (reply.status, error_code_of(reply)) == (503, GroupDyingError.code)
    assert await client.read_to_end() == b""


async def test_only_begun_heads_are_refused(stage: FrontStage) -> None:
    idle = await stage.connect()
    await idle.send(LIVE + b"\r")  # half of an empty line is no head
    assert (await idle.read_reply()).status == 200
    lent, connection = await stage.lent(ASK)
    stage.front.refuse_begun_heads(GroupDyingError("shard 0 died"))
    assert connection.slot.state is SlotState.LENT
    assert (await idle.ask(b"\n" + LIVE)).status == 200
    lent.close()
