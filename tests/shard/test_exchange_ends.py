"""The state cell and the ends of an exchange, by the client or by the reply (rules 16, 17, 19)."""

from __future__ import annotations

import asyncio

import pytest

from sessions.lending.cells import CellState
from tests.support.apps import pattern_of
from tests.support.fronts import error_code_of
from tests.support.held_app import HeldApp
from tests.support.loops import BOTH_LOOPS, Backend, turn
from tests.support.raw import request_bytes
from tests.support.stages import Stage, asked, serve_next
from tests.support.waiting import wait_until_async

GET = request_bytes("GET", "/one")
EVIL = request_bytes("GET", "/evil")
LIMIT = 100_000


@pytest.fixture(params=BOTH_LOOPS)
def anyio_backend(request: pytest.FixtureRequest) -> Backend:
    backend: Backend = request.param
    return backend


def post(body: bytes, *, by_chunks: bool, path: str = "/one") -> bytes:
    return request_bytes("POST", path, body=body, chunk_bytes=1000 if by_chunks else 0)


def cell_of(stage: Stage) -> CellState:
    """What the cell says of the current loan of the only connection."""
    (connection,) = stage.front.connections
    return stage.group.cells.read(connection.slot.number, connection.slot.generation)


# --- the state cell (rule 16)


async def test_the_cell_tells_how_far_the_reply_is(stage: Stage, app: HeldApp) -> None:
    _client, call = await asked(stage, app, GET)
    states = [cell_of(stage)]
    await call.start(length=2)
    await turn()  # a head is held until then
    states.append(cell_of(stage))
    await call.write(b"o")
    states.append(cell_of(stage))
    await call.write(b"k", more=False)
    await stage.wait_back()
    states.append(cell_of(stage))
    assert states == [
        CellState.AWAITING,
        CellState.REPLYING,
        CellState.REPLYING,
        CellState.COMPLETE,
    ]
    assert not call.is_over


async def test_a_reply_with_a_request_behind_it_is_not_complete(stage: Stage, app: HeldApp) -> None:
    """If the shard died then, the request would be lost without a word (rule 16)."""
    client, call = await asked(stage, app, GET + GET[:10])
    (exchange,) = stage.exchanges
    slot, generation = exchange.slot, exchange.generation
    await call.reply(b"one")
    assert (await client.read_reply()).body == b"one"
    await stage.wait_back()
    assert stage.group.cells.read(slot, generation) is CellState.REPLYING


async def test_a_reply_that_has_not_left_is_not_complete(stage: Stage, app: HeldApp) -> None:
    client = await stage.connect(receive_buffer_bytes=4608)
    await client.send(GET)
    call = await app.call()
    await call.reply(bytes(8 << 20))
    await turn(20)
    assert cell_of(stage) is CellState.REPLYING
    await client.read_reply(keep_body=False)
    await stage.wait_back()
    assert cell_of(stage) is CellState.COMPLETE


# --- the client's end (rule 19)


async def test_a_client_that_leaves_is_noticed_while_the_application_works(
    stage: Stage, app: HeldApp
) -> None:
    client, call = await asked(stage, app, GET)
    assert await call.read_body() == b""
    client.close()
    assert (await call.receive())["type"] == "http.disconnect"
    await call.reply(b"late")
    await wait_until_async(lambda: not stage.front.connections, "the end of the connection")
    assert not stage.exchanges


async def test_a_client_that_leaves_during_a_later_exchange_is_noticed(
    stage: Stage, app: HeldApp
) -> None:
    """A parked copy is read again by the sweep only."""
    client = await stage.connect()
    await serve_next(client, app, 0)
    await stage.wait_back()
    await client.send(GET)
    call = await app.call(1)
    assert await call.read_body() == b""
    client.close()
    assert (await call.receive())["type"] == "http.disconnect"


async def test_a_client_that_leaves_in_the_middle_of_its_body_is_noticed(
    stage: Stage, app: HeldApp
) -> None:
    client, call = await asked(stage, app, post(b"hello", by_chunks=False)[:-1])
    client.close()
    assert await call.read_body() is None
    await wait_until_async(lambda: not stage.front.connections, "the end of the connection")


async def test_a_half_closed_client_counts_as_gone(stage: Stage, app: HeldApp) -> None:
    client, call = await asked(stage, app, GET)
    client.half_close()
    assert await call.read_body() == b""
    assert (await call.receive())["type"] == "http.disconnect"
    await call.reply(b"late")
    assert await client.read_to_end() == b""
    await wait_until_async(lambda: not stage.front.connections, "the end of the connection")


async def test_a_half_closed_client_gets_the_reply_that_is_written(
    stage: Stage, app: HeldApp
) -> None:
    client, call = await asked(stage, app, GET)
    answer = pattern_of("big", 4 << 20)
    await call.reply(answer)
    client.half_close()
    assert (await client.read_reply()).body == answer
    assert await client.read_to_end() == b""


async def test_a_client_that_resets_in_the_middle_of_a_reply_ends_the_exchange(
    stage: Stage, app: HeldApp
) -> None:
    client, call = await asked(stage, app, GET)
    await call.start()
    await call.write(bytes(1 << 20))
    client.reset()
    await wait_until_async(lambda: not stage.front.connections, "the end of the connection")
    await call.write(b"more")
    assert (await call.receive())["type"] == "http.disconnect"


# --- replies that end the connection


@pytest.mark.parametrize(
    "request_",
    [
        request_bytes("GET", "/one", [("Connection", "close")]),
        request_bytes("GET", "/one", version="1.0"),
        request_bytes("GET", "/one", [("Connection", "keep-alive")], version="1.0"),
    ],
    ids=["close", "http-1.0", "http-1.0-keep-alive"],
)
async def test_a_request_that_ends_the_connection_gets_its_reply_and_the_end(
    stage: Stage, app: HeldApp, request_: bytes
) -> None:
    client, call = await asked(stage, app, request_ + EVIL)
    answer = pattern_of("big", 1 << 20)
    await call.reply(answer)
    reply = await client.read_reply()
    assert reply.body == answer
    assert reply.header("connection") == "close"
    assert await client.read_to_end() == b""
    assert len(app.calls) == 1


async def test_a_last_reply_reaches_a_client_that_is_still_sending(
    stage: Stage, app: HeldApp
) -> None:
    """Rule 17: its bytes are read on and dropped, else a reset would eat the reply."""
    size = 8 << 20
    close = [("Connection", "close"), ("Transfer-Encoding", "chunked")]
    client = await stage.connect()
    await client.send(request_bytes("PUT", "/one", close).replace(b"Content-Length: 0\r\n", b""))
    await (await app.call()).reply(b"early", status=401)
    await client.send(b"%x\r\n" % size)
    await client.send(bytes(size), piece_bytes=65536)
    reply = await client.read_reply()
    assert (reply.status, reply.body, reply.header("connection")) == (401, b"early", "close")
    assert await client.read_to_end() == b""


async def test_an_http10_client_gets_no_100(stage: Stage, app: HeldApp) -> None:
    request = request_bytes("POST", "/one", [("Expect", "100-continue")], b"hello", version="1.0")
    client, call = await asked(stage, app, request[:-5])
    reading = asyncio.create_task(call.read_body())
    await turn()
    await client.send(b"hello")
    assert await reading == b"hello"
    await call.reply(b"ok")
    reply = await client.read_reply()
    assert (reply.status, reply.interim) == (200, [])


async def test_a_reply_that_says_close_ends_the_connection_behind_a_slow_reader(
    stage: Stage, app: HeldApp
) -> None:
    client = await stage.connect(receive_buffer_bytes=4608)
    await client.send(GET)
    call = await app.call()
    answer = pattern_of("big", 4 << 20)
    await call.reply(answer, headers=[(b"connection", b"close")])
    await turn(50)
    assert stage.lent_count == 1, "the end waits for the reply"
    await client.send(b"still sending")
    assert (await client.read_reply()).body == answer
    assert await client.read_to_end() == b""


async def test_an_application_that_fails_before_its_reply_gets_500_and_goes_on(
    stage: Stage, app: HeldApp
) -> None:
    client, call = await asked(stage, app, post(b"body", by_chunks=False))
    call.fail(RuntimeError("on purpose"))
    reply = await client.read_reply()
    assert (reply.status, error_code_of(reply)) == (500, "internal_error")
    await serve_next(client, app, 1)


async def test_an_application_that_fails_in_its_reply_cuts_it(stage: Stage, app: HeldApp) -> None:
    client, call = await asked(stage, app, GET)
    await call.start(length=100)
    await call.write(b"half")
    call.fail(RuntimeError("on purpose"))
    assert (await client.read_to_end()).endswith(b"\r\n\r\nhalf")


# --- the last exchange of a group that was told to stop (rule 7)


@pytest.mark.parametrize("late_bytes", [0, 5], ids=["whole", "after-100"])
async def test_a_last_reply_says_close_whatever_became_of_an_expectation(
    stage: Stage, app: HeldApp, late_bytes: int
) -> None:
    stage.group.board.set_draining()
    request = request_bytes("POST", "/one", [("Expect", "100-continue")], b"hello")
    begun = len(request) - late_bytes
    client, call = await asked(stage, app, request[:begun])
    body = asyncio.create_task(call.read_body())
    await turn()
    await client.send(request[begun:])
    assert await body == b"hello"
    await call.reply(b"last")
    reply = await client.read_reply()
    assert (reply.body, reply.header("connection")) == (b"last", "close")
    assert await client.read_to_end() == b""
