"""A client connection at a real front on both loops: heads, local answers and loans."""

from __future__ import annotations

import asyncio
import os
import socket

import pytest

from sessions.errors.group import NotReadyError, OverloadedError, ShardGoneError
from sessions.errors.sessions import BadSessionIdError
from sessions.lending.group import Group
from sessions.lending.slots import SlotEvent, SlotState
from sessions.wire.refusals import refusal_body_of
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


# --- heads


async def test_a_head_in_single_bytes_is_lent_once_and_whole(stage: FrontStage) -> None:
    client = await stage.connect()
    await client.send(ASK, piece_bytes=1)
    loan = await stage.loan()
    assert loan.payload == ASK
    assert loan.head.size == len(ASK)
    assert len(stage.dispatcher.loans) == 1


@pytest.mark.parametrize("cut", [1, 10, len(POST) - 9, len(POST) - 6, len(POST) - 5, len(POST)])
async def test_a_loan_carries_the_head_and_what_came_with_it(stage: FrontStage, cut: int) -> None:
    client = await stage.connect()
    connection = await stage.connection()
    await client.send(POST[:cut])
    await wait_until_async(
        lambda: bool(connection._buffer or stage.dispatcher.loans), "the first piece"
    )
    await client.send(POST[cut:])
    loan = await stage.loan()
    read_here = loan.payload
    assert read_here.startswith(POST[: len(POST) - 5])
    assert POST.startswith(read_here)
    assert loan.head.size == len(POST) - 5


@pytest.mark.parametrize("prefix", [b"\r\n", b"\r\n\r\n\r\n"])
async def test_empty_lines_before_a_head_are_dropped(stage: FrontStage, prefix: bytes) -> None:
    client = await stage.connect()
    await client.send(prefix + LIVE + prefix + LIVE, piece_bytes=1)
    assert [(await client.read_reply()).status for _ in range(2)] == [200, 200]
    await client.send(prefix + ASK)
    assert (await stage.loan()).payload == ASK


@pytest.mark.parametrize("start", [b"\r", b"\r\n\r"])
async def test_a_lone_carriage_return_waits_for_what_follows(
    stage: FrontStage, start: bytes
) -> None:
    client = await stage.connect()
    await client.send(start)
    connection = await stage.connection()
    await wait_until_async(lambda: connection._buffer == b"\r", "the carriage return")
    await client.send(b"\n" + LIVE)
    assert (await client.read_reply()).status == 200


@pytest.mark.parametrize(
    ("sent", "status", "code"),
    [
        (b"\n", 400, "bad_request_head"),
        (b"\rGET / HTTP/1.1\r\n\r\n", 400, "bad_request_head"),
        (b"nonsense\r\n\r\n", 400, "bad_request_head"),
        (b"GET / HTTP/1.1\r\n\r\n", 400, "bad_request_head"),
        (b"CONNECT a:1 HTTP/1.1\r\nHost: a\r\n\r\n", 405, "method_not_allowed"),
        (
            b"GET / HTTP/1.1\r\nHost: a\r\nConnection: upgrade\r\nUpgrade: websocket\r\n\r\n",
            426,
            "upgrade_refused",
        ),
        (b"GET / HTTP/1.1\r\nX: " + b"y" * 5000, 431, "head_too_large"),
    ],
)
async def test_a_bad_head_is_answered_and_ends_the_connection(
    stage: FrontStage, sent: bytes, status: int, code: str
) -> None:
    client = await stage.connect()
    reply = await client.ask(sent)
    assert (reply.status, error_code_of(reply)) == (status, code)
    name, options = reply.headers[-1]
    assert (name, options.split(", ")[0]) == ("connection", "close")
    assert await client.read_to_end() == b""
    assert not stage.dispatcher.loans


async def test_the_head_limit_holds_on_both_sides_of_its_edge(stage: FrontStage) -> None:
    limit = stage.group.settings.head_bytes
    for size, status in ((limit, 0), (limit + 1, 431)):
        client = await stage.connect()
        padding = "p" * (size - len(request_bytes("GET", "/x", [("P", "")])))
        head = request_bytes("GET", "/x", [("P", padding)])
        assert len(head) == size
        await client.send(head, piece_bytes=1000)
        if status:
            assert (await client.read_reply()).status == status
        else:
            assert (await stage.loan()).head.size == size
    assert len(stage.dispatcher.loans) == 1


async def test_an_upgrade_header_is_renamed_before_it_is_lent(stage: FrontStage) -> None:
    upgrading = request_bytes(
        "POST", "/x", [("Connection", "Upgrade"), ("Upgrade", "h2c")], b"GET /evil"
    )
    await stage.lent(upgrading)
    assert stage.dispatcher.loans[0].payload == upgrading.replace(b"Upgrade: h", b"x-noupg: h")


# --- local answers


async def test_a_probe_is_answered_here_and_the_connection_goes_on(stage: FrontStage) -> None:
    client = await stage.connect()
    for _ in range(3):
        reply = await client.ask(LIVE)
        assert (reply.status, reply.body) == (200, b'{"status":"ok"}')
        assert [name for name, _ in reply.headers] == [
            "date",
            "server",
            "content-type",
            "cache-control",
            "content-length",
        ]
    assert not stage.dispatcher.named


async def test_pipelined_probes_are_answered_in_order(stage: FrontStage) -> None:
    client = await stage.connect()
    await client.send((LIVE + READY) * 20)
    bodies = [(await client.read_reply()).body for _ in range(40)]
    assert bodies == [b'{"status":"ok"}'] * 40
    client_two = await stage.connect()
    stage.group.board.set_draining()
    await client_two.send((LIVE + READY) * 3)
    assert [(await client_two.read_reply()).status for _ in range(6)] == [200, 503] * 3


async def test_a_probe_by_head_gets_no_body(stage: FrontStage) -> None:
    client = await stage.connect()
    reply = await client.ask(request_bytes("HEAD", "/livez"), head_only=True)
    assert (reply.status, reply.header("content-length")) == (200, "15")
    assert (await client.ask(LIVE)).body == b'{"status":"ok"}'


@pytest.mark.parametrize(
    "request_",
    [
        request_bytes("GET", "/livez", [("Connection", "close")]),
        request_bytes("GET", "/livez", version="1.0"),
        request_bytes("GET", "/livez", body=b"a body"),
        request_bytes("GET", "/livez", body=b"a body", chunk_bytes=3),
    ],
    ids=["close", "http-1.0", "body", "chunked"],
)
async def test_a_local_answer_ends_the_connection_that_cannot_go_on(
    stage: FrontStage, request_: bytes
) -> None:
    client = await stage.connect()
    reply = await client.ask(request_)
    assert reply.status == 200
    assert reply.headers[-1] == ("connection", "close")
    assert await client.read_to_end() == b""


async def test_a_body_that_a_local_answer_passed_over_is_no_request(stage: FrontStage) -> None:
    client = await stage.connect()
    await client.send(request_bytes("GET", "/livez", body=ASK) + ASK)
    assert (await client.read_reply()).status == 200
    assert await client.read_to_end() == b""
    assert not stage.dispatcher.named


async def test_a_request_that_nobody_serves_is_answered_and_the_connection_goes_on(
    stage: FrontStage,
) -> None:
    stage.dispatcher.refusal = NotReadyError("starting")
    client = await stage.connect()
    reply = await client.ask(ASK)
    assert (reply.status, error_code_of(reply), reply.header("retry-after")) == (
        503,
        "not_ready",
        "1",
    )
    assert reply.header("connection") is None
    stage.dispatcher.refusal = None
    await client.send(ASK)
    assert (await stage.loan()).payload == ASK


async def test_a_refusal_on_the_path_of_mcp_is_an_error_of_json_rpc_too(stage: FrontStage) -> None:
    refusal = stage.dispatcher.refusal = NotReadyError("later")
    client = await stage.connect()
    await client.send(request_bytes("GET", "/mcp?x"))
    assert (await client.read_reply()).body == refusal_body_of(refusal, b"/mcp") != refusal.body


async def test_the_answer_for_a_dead_shard_on_the_path_of_mcp_is_an_error_of_json_rpc_too(
    stage: FrontStage,
) -> None:
    client = await stage.connect()
    await client.send(request_bytes("POST", "/mcp", body=b"{}"))
    loan = await stage.loan()
    loan.connection.slot.feed(SlotEvent.DIED_AWAITING)
    gone = ShardGoneError("gone")
    loan.connection.answer_dead(gone, loan.head)
    assert (await client.read_reply()).body == refusal_body_of(gone, b"/mcp") != gone.body


async def test_a_refused_request_with_a_body_ends_the_connection(stage: FrontStage) -> None:
    stage.dispatcher.refusal = NotReadyError("starting")
    client = await stage.connect()
    reply = await client.ask(POST)
    assert (reply.status, reply.header("connection")) == (503, "close")
    assert await client.read_to_end() == b""


async def test_a_short_head_behind_a_long_one_in_pieces_is_seen(stage: FrontStage) -> None:
    long = request_bytes("GET", "/livez", [("Padding", "p" * 1000)])
    client = await stage.connect()
    connection = await stage.connection()
    await client.send(long[:-1])
    await wait_until_async(lambda: bool(connection._buffer), "the first piece")
    await client.send(long[-1:] + LIVE)
    assert [(await client.read_reply()).status for _ in range(2)] == [200, 200]


async def test_a_bad_session_id_is_answered_here(stage: FrontStage) -> None:
    client = await stage.connect()
    reply = await client.ask(request_bytes("GET", "/sessions/a%20b/x"))
    assert (reply.status, error_code_of(reply)) == (
        BadSessionIdError.status,
        BadSessionIdError.code,
    )
    assert not stage.dispatcher.named


async def test_a_local_answer_leaves_before_the_request_behind_it_is_lent(group: Group) -> None:
    """Rule 6, with a client that reads nothing: the shard must not write before our own reply."""
    async with open_front(group, send_buffer_bytes=4608) as stage:
        client = await stage.connect(receive_buffer_bytes=4608)
        count = 400
        probe = request_bytes("GET", "/healthz")
        sending = asyncio.create_task(client.send(probe * count + ASK))
        connection = await stage.connection()
        await wait_until_async(lambda: not connection.is_flushed, "a reply that does not leave")
        await turn(20)
        assert not connection.is_flushed
        assert connection.transport.get_write_buffer_size() < 2000, "one reply waits, not many"
        assert not connection.transport.is_reading(), "nor do its requests pile up here"
        assert not stage.dispatcher.loans
        replies = [await client.read_reply() for _ in range(count)]
        assert {reply.status for reply in replies} == {200}
        loan = await stage.loan()
        assert connection.is_flushed
        assert loan.payload.startswith(ASK)
        assert min(connection.transport.get_write_buffer_limits()) > 0, "as before"
        await sending


async def test_reading_goes_on_when_a_reply_that_waited_has_left(group: Group) -> None:
    async with open_front(group, send_buffer_bytes=4608) as stage:
        client = await stage.connect(receive_buffer_bytes=4608)
        connection = await stage.connection()
        count = 0
        while connection.is_flushed:
            await client.send(LIVE)
            count += 1
            await turn()
        await client.send(LIVE[:7])
        await wait_until_async(lambda: not connection.transport.is_reading(), "a pause")
        for _ in range(count):
            assert (await client.read_reply()).status == 200
        await client.send(LIVE[7:])
        assert (await client.read_reply()).status == 200


async def test_many_pipelined_answers_do_not_nest(stage: FrontStage) -> None:
    client = await stage.connect()
    count = 3000  # far over the recursion limit
    sending = asyncio.create_task(client.send(LIVE * count + ASK))
    for _ in range(count):
        assert (await client.read_reply()).status == 200
    await sending
    assert (await stage.loan()).payload == ASK


# --- loans


async def test_nothing_is_read_here_while_a_shard_has_the_connection(stage: FrontStage) -> None:
    """Rule 1; the bytes are still in the kernel for the shard."""
    client, connection = await stage.lent(ASK)
    shard_end = socket.socket(fileno=os.dup(connection.descriptor))
    assert connection._buffer == b"", "what was lent is not kept"
    with shard_end:
        await client.send(b"body for the shard")
        connection.resume_writing()  # a late word of the loop
        await turn(20)
        assert shard_end.recv(100) == b"body for the shard"
    connection.take_back(0, b"", kept=True)
    await client.send(LIVE)
    assert (await client.read_reply()).status == 200


async def test_only_the_first_loan_to_a_shard_goes_with_the_descriptor(stage: FrontStage) -> None:
    client, connection = await stage.lent(ASK)
    for number, owner in ((1, 0), (2, 1), (3, 0), (4, 1)):
        connection.take_back(stage.dispatcher.loans[-1].shard, b"", kept=True)
        stage.dispatcher.owner = owner
        await client.send(ASK)
        await stage.loan(number)
    assert [loan.needs_descriptor for loan in stage.dispatcher.loans] == [
        True,
        False,
        True,
        False,
        False,
    ]


@pytest.mark.parametrize("cut", [0, 1, len(ASK) - 1, len(ASK)])
async def test_what_follows_an_exchange_begins_the_next(stage: FrontStage, cut: int) -> None:
    client, connection = await stage.lent(ASK)
    connection.take_back(0, ASK[:cut], kept=True)
    await client.send(ASK[cut:] + LIVE)
    loan = await stage.loan(1)
    assert loan.payload in (ASK, ASK + LIVE)
    connection.take_back(0, loan.payload[len(ASK) :], kept=True)
    assert (await client.read_reply()).status == 200


async def test_a_long_row_of_leftovers_does_not_nest(stage: FrontStage) -> None:
    client, connection = await stage.lent(ASK)
    row = LIVE * 1000 + ASK
    connection.take_back(0, row, kept=True)
    for _ in range(1000):
        assert (await client.read_reply()).status == 200
    assert (await stage.loan(1)).payload == ASK


async def test_a_lost_loan_ends_the_connection_although_a_copy_is_open(stage: FrontStage) -> None:
    """Rule 17: a shutdown reaches the client while a parked copy keeps the connection open."""
    client, connection = await stage.lent(ASK)
    copy = os.dup(connection.descriptor)
    try:
        connection.take_back(0, b"", kept=False)
        assert await client.read_to_end() == b""
        assert connection.slot.state is SlotState.ENDING
        client.close()
        await stage.wait_empty()
    finally:
        os.close(copy)


async def test_a_lost_loan_of_a_client_that_reset_is_no_error(stage: FrontStage) -> None:
    client, connection = await stage.lent(ASK)
    client.reset()
    connection.take_back(0, b"", kept=False)
    await stage.wait_empty()


async def test_a_loan_that_nobody_executed_is_answered_and_the_next_request_served(
    stage: FrontStage,
) -> None:
    client, connection = await stage.lent(ASK)
    connection.slot.take_refusal(0)
    loan = stage.dispatcher.loans[0]
    connection.answer_refused(OverloadedError("no descriptor"), loan.head, ASK + LIVE)
    assert error_code_of(await client.read_reply()) == "overloaded"
    assert (await client.read_reply()).body == b'{"status":"ok"}'
    assert (await client.ask(READY)).status == 200


async def test_a_loan_with_a_body_that_nobody_executed_ends_the_connection(
    stage: FrontStage,
) -> None:
    client, connection = await stage.lent(POST)
    connection.slot.take_refusal(0)
    loan = stage.dispatcher.loans[0]
    connection.answer_refused(OverloadedError("no descriptor"), loan.head, POST + LIVE)
    reply = await client.read_reply()
    assert (reply.status, reply.header("connection")) == (503, "close")
    assert await client.read_to_end() == b""
