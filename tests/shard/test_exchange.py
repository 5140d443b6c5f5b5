"""An exchange on a lone shard and behind a router, on both loops: when it is over (rule 10)."""

from __future__ import annotations

import asyncio

import pytest

from tests.support.apps import pattern_of
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


# --- plain exchanges


@pytest.mark.parametrize("by_chunks", [False, True])
@pytest.mark.parametrize("size", [0, 1, 5000, 70_000])
@pytest.mark.parametrize("piece_bytes", [0, 7000])
async def test_the_application_gets_the_whole_body_and_the_client_the_whole_reply(
    stage: Stage, app: HeldApp, size: int, piece_bytes: int, *, by_chunks: bool
) -> None:
    body, answer = pattern_of("in", size), pattern_of("out", size)
    client = await stage.connect()
    await client.send(post(body, by_chunks=by_chunks), piece_bytes=piece_bytes)
    call = await app.call()
    assert await call.read_body() == body
    await call.reply(answer)
    reply = await client.read_reply()
    assert (reply.status, reply.body, reply.framing) == (200, answer, "length")
    await serve_next(client, app, 1)


async def test_the_scope_tells_the_client_and_the_request(stage: Stage, app: HeldApp) -> None:
    head = request_bytes("GET", "/a%20b?c=d", [("X-Y", " z ")])
    client, call = await asked(stage, app, head)
    scope = call.scope
    assert tuple(scope["client"]) == client.socket.getsockname()
    assert tuple(scope["server"]) == stage.address
    assert (scope["path"], scope["raw_path"], scope["query_string"]) == (
        "/a b",
        b"/a%20b",
        b"c=d",
    )
    assert scope["headers"][-1] == (b"x-y", b"z ")


@pytest.mark.parametrize("trailer", [b"", b"Host: evil\r\nX-Trailer: y\r\n"])
async def test_trailers_are_no_headers_of_the_request(
    stage: Stage, app: HeldApp, trailer: bytes
) -> None:
    head = request_bytes("POST", "/one", chunk_bytes=1)[: -len(b"0\r\n\r\n")]
    client, call = await asked(stage, app, head)
    names = list(call.scope["headers"])
    await client.send(b"3\r\nabc\r\n0\r\n" + trailer + b"\r\n")
    assert await call.read_body() == b"abc"
    assert call.scope["headers"] == names
    await call.reply(b"ok")
    assert (await client.read_reply()).status == 200
    await serve_next(client, app, 1)


async def test_many_exchanges_on_one_connection_leave_nothing_behind(
    stage: Stage, app: HeldApp
) -> None:
    client = await stage.connect()
    for number in range(20):
        await client.send(post(b"x" * number, by_chunks=bool(number % 2)))
        call = await app.call(number)
        await call.reply(b"y" * number)
        assert len((await client.read_reply()).body) == number
        call.end()
    await stage.wait_back()
    assert len(stage.exchanges) == 1


# --- when an exchange is over (rule 10)


@pytest.mark.parametrize("by_chunks", [False, True])
async def test_an_exchange_lasts_until_its_request_is_read_to_the_end(
    stage: Stage, app: HeldApp, *, by_chunks: bool
) -> None:
    """The rest of a body must not be read as a head and executed."""
    request = post(EVIL * 3, by_chunks=by_chunks)
    cut = len(request) - len(EVIL) - 10
    client, call = await asked(stage, app, request[:cut])
    await call.reply(b"early", status=401)
    assert (await client.read_reply()).status == 401
    await turn(20)
    assert stage.lent_count == 1
    await client.send(request[cut:])
    await stage.wait_back()
    await serve_next(client, app, 1)


@pytest.mark.parametrize("late_bytes", [0, 2])
async def test_an_exchange_lasts_until_its_reply_is_complete(
    stage: Stage, app: HeldApp, late_bytes: int
) -> None:
    """Whether the request was whole at once, or is read to its end meanwhile."""
    request = post(b"body", by_chunks=False)
    cut = len(request) - late_bytes
    client, call = await asked(stage, app, request[:cut])
    await call.start()
    await call.write(b"first")
    await client.send(request[cut:] + request_bytes("GET", "/two"))
    await turn(20)
    assert stage.lent_count == 1
    assert len(app.calls) == 1
    await call.write(b"last", more=False)
    assert (await client.read_reply()).body == b"firstlast"
    await (await app.call(1)).reply(b"two")
    assert (await client.read_reply()).body == b"two"


async def test_an_exchange_lasts_until_its_reply_has_left(stage: Stage, app: HeldApp) -> None:
    client = await stage.connect(receive_buffer_bytes=4608)
    await client.send(GET)
    call = await app.call()
    answer = pattern_of("big", 8 << 20)
    await call.reply(answer)
    call.end()
    await client.send(request_bytes("GET", "/two"))
    await turn(50)
    assert stage.lent_count == 1
    assert len(app.calls) == 1
    assert (await client.read_reply()).body == answer
    second = await app.call(1)
    limits = stage.exchanges[0].transport._transport.get_write_buffer_limits()
    assert min(limits) > 0, "the limits are as before"
    await second.reply(b"two")
    assert (await client.read_reply()).body == b"two"


async def test_a_late_word_of_the_loop_gives_nothing_back_twice(stage: Stage, app: HeldApp) -> None:
    client, call = await asked(stage, app, GET)
    await call.reply(b"one")
    assert (await client.read_reply()).body == b"one"
    await stage.wait_back()
    (exchange,) = stage.exchanges
    exchange.resume_writing()
    await turn()
    await serve_next(client, app, 1)


@pytest.mark.parametrize("by_chunks", [False, True])
async def test_a_later_exchange_reads_a_body_that_comes_late(
    stage: Stage, app: HeldApp, *, by_chunks: bool
) -> None:
    client = await stage.connect()
    await serve_next(client, app, 0)
    await stage.wait_back()
    body = pattern_of("late", 200_000)
    request = post(body, by_chunks=by_chunks)
    await client.send(request[:100])
    call = await app.call(1)
    sending = asyncio.create_task(client.send(request[100:], piece_bytes=50_000))
    assert await call.read_body() == body
    await sending
    await call.reply(b"ok")
    assert (await client.read_reply()).status == 200
    await serve_next(client, app, 2)


async def test_an_application_that_goes_on_after_its_reply_holds_nothing_up(
    stage: Stage, app: HeldApp
) -> None:
    client, call = await asked(stage, app, GET)
    await call.reply(b"one")
    assert (await client.read_reply()).body == b"one"
    await serve_next(client, app, 1)
    assert not call.is_over
    assert (await call.receive())["type"] == "http.disconnect"


async def test_an_application_that_fails_after_its_reply_harms_no_later_exchange(
    stage: Stage, app: HeldApp
) -> None:
    client, call = await asked(stage, app, GET)
    await call.reply(b"one")
    assert (await client.read_reply()).body == b"one"
    await stage.wait_back()
    call.fail(RuntimeError("in the background"))
    await wait_until_async(lambda: call.is_over, "the failure")
    await turn()
    await serve_next(client, app, 1)


async def test_an_application_that_fails_during_the_next_exchange_does_not_end_it(
    stage: Stage, app: HeldApp
) -> None:
    client, call = await asked(stage, app, GET)
    await call.reply(b"one")
    assert (await client.read_reply()).body == b"one"
    await client.send(request_bytes("GET", "/two"))
    second = await app.call(1)
    call.fail(RuntimeError("in the background"))
    await wait_until_async(lambda: call.is_over, "the failure")
    await turn()
    await second.reply(b"two")
    assert (await client.read_reply()).body == b"two"
    await serve_next(client, app, 2)
