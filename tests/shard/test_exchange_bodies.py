"""Request bodies of an exchange: early replies, what follows, breaks, limits (rules 11, 12)."""

from __future__ import annotations

import asyncio
import contextlib
from pathlib import Path

import pytest

from sessions.errors.protocol import BadBodyError, BodyTooLargeError
from sessions.lending.cells import CellState
from sessions.lending.group import Group
from sessions.shard import exchange as exchange_module
from sessions.shard.exchange import LEFTOVER_LIMIT_BYTES
from sessions.shard.request_body import RequestBody
from tests.support.apps import pattern_of
from tests.support.fronts import error_code_of
from tests.support.held_app import HeldApp
from tests.support.loops import BOTH_LOOPS, Backend, turn
from tests.support.members import group_of
from tests.support.raw import chunked, request_bytes
from tests.support.stages import Stage, asked, serve_next
from tests.support.waiting import wait_until_async

GET = request_bytes("GET", "/one")
EVIL = request_bytes("GET", "/evil")
LIMIT = 100_000


@pytest.fixture(params=BOTH_LOOPS)
def anyio_backend(request: pytest.FixtureRequest) -> Backend:
    backend: Backend = request.param
    return backend


@pytest.fixture
def group(tmp_path: Path) -> Group:
    return group_of(tmp_path, body_bytes=LIMIT)


def post(body: bytes, *, by_chunks: bool, path: str = "/one") -> bytes:
    return request_bytes("POST", path, body=body, chunk_bytes=1000 if by_chunks else 0)


def cell_of(stage: Stage) -> CellState:
    """What the cell says of the current loan of the only connection."""
    (connection,) = stage.front.connections
    return stage.group.cells.read(connection.slot.number, connection.slot.generation)


# --- early replies (rule 11)


@pytest.mark.parametrize("by_chunks", [False, True])
async def test_the_rest_of_a_body_is_discarded_after_an_early_reply(
    stage: Stage, app: HeldApp, *, by_chunks: bool
) -> None:
    body = pattern_of("late", 90_000)
    request = post(body, by_chunks=by_chunks)
    client, call = await asked(stage, app, request[:200])
    await call.reply(b"early", status=413)
    assert (await client.read_reply()).status == 413
    call.end()
    await client.send(request[200:] + request_bytes("GET", "/two"), piece_bytes=20_000)
    second = await app.call(1)
    assert second.scope["path"] == "/two"
    await second.reply(b"two")
    assert (await client.read_reply()).body == b"two"


@pytest.mark.parametrize("by_chunks", [False, True])
async def test_the_rest_of_a_body_that_nobody_took_is_discarded(
    stage: Stage, app: HeldApp, *, by_chunks: bool
) -> None:
    """Reading had paused, since the application let the body pile up."""
    client = await stage.connect()
    request = post(pattern_of("late", LIMIT), by_chunks=by_chunks)
    await client.send(request[:1000])
    call = await app.call()
    await client.send(request[1000:80_000])
    (exchange,) = stage.exchanges
    await wait_until_async(lambda: exchange.flow.read_paused, "a pause")
    await call.reply(b"early", status=401)
    assert (await client.read_reply()).status == 401
    await client.send(request[80_000:])
    await serve_next(client, app, 1)


async def test_a_chunked_body_that_is_discarded_has_no_limit(stage: Stage, app: HeldApp) -> None:
    request = post(bytes(3 * LIMIT), by_chunks=True)
    client, call = await asked(stage, app, request[:1000])
    await call.reply(b"early", status=401)
    assert (await client.read_reply()).status == 401
    await client.send(request[1000:], piece_bytes=30_000)
    await serve_next(client, app, 1)


async def test_an_early_reply_to_a_large_upload_keeps_the_connection(
    stage: Stage, app: HeldApp
) -> None:
    """A bound on what is discarded would break clients in the middle of an upload."""
    length = 6 << 20
    head = request_bytes("PUT", "/one", [("Content-Length", str(length))]).replace(
        b"Content-Length: 0\r\n", b""
    )
    client = await stage.connect()
    await client.send(head)
    reply = await client.read_reply()
    assert (reply.status, error_code_of(reply)) == (413, BodyTooLargeError.code)
    assert reply.header("connection") is None
    await client.send(bytes(length), piece_bytes=65536)
    await serve_next(client, app, 0)


async def test_a_client_that_waits_for_100_gets_it_when_the_body_is_wanted(
    stage: Stage, app: HeldApp
) -> None:
    request = request_bytes("POST", "/one", [("Expect", "100-continue")], b"hello")
    client, call = await asked(stage, app, request[:-5])
    await client.send(b"hello")
    assert await call.read_body() == b"hello"
    assert cell_of(stage) is CellState.AWAITING, "a 1xx is no reply (rule 16)"
    await call.reply(b"ok")
    reply = await client.read_reply()
    assert (reply.status, reply.body) == (200, b"ok")
    assert [head.partition(b"\r\n")[0] for head in reply.interim] == [b"HTTP/1.1 100 Continue"]
    await serve_next(client, app, 1)


async def test_a_client_that_waits_for_100_and_gets_a_final_reply_is_ended(
    stage: Stage, app: HeldApp
) -> None:
    request = request_bytes("POST", "/one", [("Expect", "100-continue")], b"hello")
    client, call = await asked(stage, app, request[:-5])
    await call.reply(b"no", status=401)
    reply = await client.read_reply()
    assert (reply.status, reply.interim) == (401, [])
    assert await client.read_to_end() == b""


async def test_a_client_that_did_not_wait_for_100_goes_on(stage: Stage, app: HeldApp) -> None:
    request = request_bytes("POST", "/one", [("Expect", "100-continue")], b"hello")
    client, call = await asked(stage, app, request)
    (exchange,) = stage.exchanges
    await wait_until_async(lambda: exchange._body.is_whole, "the body")
    await call.reply(b"no", status=401)
    reply = await client.read_reply()
    assert (reply.status, reply.header("connection")) == (401, None)
    await serve_next(client, app, 1)


async def test_a_reply_that_said_close_closes_although_the_body_came_after_all(
    stage: Stage, app: HeldApp
) -> None:
    request = request_bytes("POST", "/one", [("Expect", "100-continue")], b"hello")
    client, call = await asked(stage, app, request[:-5])
    await call.start(401, length=2)
    await turn()
    await client.send(b"hello")
    (exchange,) = stage.exchanges
    await wait_until_async(lambda: exchange._body.is_whole, "the body")
    await call.write(b"no", more=False)
    reply = await client.read_reply()
    assert (reply.status, reply.header("connection")) == (401, "close")
    assert await client.read_to_end() == b""


async def test_a_client_that_got_100_and_an_early_reply_may_go_on(
    stage: Stage, app: HeldApp
) -> None:
    request = request_bytes("POST", "/one", [("Expect", "100-continue")], b"hello")
    client, call = await asked(stage, app, request[:-5])
    await client.send(b"h")
    assert (await call.receive())["more_body"]
    await call.reply(b"no", status=401)
    assert (await client.read_reply()).status == 401
    await client.send(b"ello")
    await serve_next(client, app, 1)


# --- what follows (rule 12)


@pytest.mark.parametrize("by_chunks", [False, True])
@pytest.mark.parametrize("behind", [1, len(GET) - 1, len(GET)])
async def test_bytes_behind_a_body_begin_the_next_exchange(
    stage: Stage, app: HeldApp, behind: int, *, by_chunks: bool
) -> None:
    second = request_bytes("GET", "/two")
    client, call = await asked(stage, app, post(b"body", by_chunks=by_chunks) + second[:behind])
    assert await call.read_body() == b"body"
    await call.reply(b"one")
    await client.send(second[behind:])
    assert (await client.read_reply()).body == b"one"
    call = await app.call(1)
    assert call.scope["path"] == "/two"
    await call.reply(b"two")
    assert (await client.read_reply()).body == b"two"


@pytest.mark.parametrize("by_chunks", [False, True])
async def test_pipelined_requests_are_served_one_by_one_in_order(
    stage: Stage, app: HeldApp, *, by_chunks: bool
) -> None:
    count = 30
    client = await stage.connect()
    await client.send(
        b"".join(
            post(b"%d" % number, by_chunks=by_chunks, path=f"/{number}") for number in range(count)
        )
    )
    for number in range(count):
        call = await app.call(number)
        assert call.scope["path"] == f"/{number}"
        assert await call.read_body() == b"%d" % number
        await turn()
        assert len(app.calls) == number + 1
        await call.reply(b"reply %d" % number)
        assert (await client.read_reply()).body == b"reply %d" % number
        call.end()


async def test_what_a_client_sends_ahead_is_bounded(stage: Stage, app: HeldApp) -> None:
    """Also when the application asks again and again whether its client has gone."""
    client, call = await asked(stage, app, GET)
    assert await call.read_body() == b""
    sent = 0
    for _ in range(500):
        with contextlib.suppress(BlockingIOError):
            sent += client.socket.send(bytes(65536))
        asking = asyncio.ensure_future(call.receive())
        await turn(2)
        asking.cancel()
        await asyncio.gather(asking, return_exceptions=True)
    assert sent > 1 << 20
    (exchange,) = stage.exchanges
    assert LEFTOVER_LIMIT_BYTES < len(exchange._leftover) <= LEFTOVER_LIMIT_BYTES + (1 << 18)
    await call.reply(b"one")
    assert (await client.read_reply()).body == b"one"
    assert (await client.read_reply()).status == 400, "zeros are no head"


@pytest.mark.parametrize("size", [LEFTOVER_LIMIT_BYTES - 1, LEFTOVER_LIMIT_BYTES + 1, 200_000])
async def test_a_long_row_behind_a_request_is_served_whole(
    stage: Stage, app: HeldApp, size: int
) -> None:
    head = post(b"", by_chunks=False)
    second = request_bytes("POST", "/two", body=pattern_of("two", min(size, LIMIT)))
    client, call = await asked(stage, app, head + second)
    await turn(20)
    await call.reply(b"one")
    assert (await client.read_reply()).body == b"one"
    call = await app.call(1)
    assert await call.read_body() == pattern_of("two", min(size, LIMIT))
    await call.reply(b"two")
    assert (await client.read_reply()).body == b"two"


# --- broken bodies


@pytest.mark.parametrize(
    "body", [b"zz\r\n", b"3\r\nabcd\r\n", b"3\nabc\r\n", b"-1\r\n", b"0\r\n\x00:\r\n\r\n"]
)
async def test_a_malformed_body_gets_400_in_our_shape_and_the_end(
    stage: Stage, app: HeldApp, body: bytes
) -> None:
    head = request_bytes("POST", "/one", chunk_bytes=1)[: -len(b"0\r\n\r\n")]
    client, call = await asked(stage, app, head)
    await client.send(body + EVIL)
    reply = await client.read_reply()
    assert (reply.status, error_code_of(reply)) == (400, BadBodyError.code)
    assert reply.headers[-1] == ("connection", "close")
    assert await client.read_to_end() == b""
    assert await call.read_body() is None
    await call.reply(b"late")
    assert len(app.calls) == 1


async def test_a_malformed_body_cuts_a_reply_that_has_begun(stage: Stage, app: HeldApp) -> None:
    head = request_bytes("POST", "/one", chunk_bytes=1)[: -len(b"0\r\n\r\n")]
    client, call = await asked(stage, app, head)
    await call.start(length=100)
    await call.write(b"half")
    await client.send(b"zz\r\n")
    rest = await client.read_to_end()
    assert rest.count(b"HTTP/1.1") == 1
    assert rest.endswith(b"\r\n\r\nhalf")


async def test_a_malformed_body_cuts_a_reply_that_a_slow_client_still_reads(
    stage: Stage, app: HeldApp
) -> None:
    """The application hears of the end at once, and nothing that it still writes is sent."""
    head = request_bytes("POST", "/one", chunk_bytes=1)[: -len(b"0\r\n\r\n")]
    client = await stage.connect(receive_buffer_bytes=4608)
    await client.send(head)
    call = await app.call()
    half = pattern_of("half", 8 << 20)
    await call.start(length=2 * len(half))
    await call.write(half)
    writing = asyncio.create_task(call.write(half, more=False))
    await client.send(b"zz\r\n")
    async with asyncio.timeout(10):
        while (await call.receive())["type"] != "http.disconnect":
            pass
    assert stage.lent_count == 1, "the end itself waits for what was written"
    rest = await client.read_to_end()
    assert rest.endswith(b"\r\n\r\n" + half)
    await writing


async def test_a_body_whose_end_the_two_parsers_see_apart_is_refused(
    stage: Stage, app: HeldApp, monkeypatch: pytest.MonkeyPatch
) -> None:
    class ShortBody(RequestBody):
        def feed(self, data: bytes) -> int:
            super().feed(data)
            self.is_whole = True
            return len(data) - 2

    monkeypatch.setattr(exchange_module, "RequestBody", ShortBody)
    head = request_bytes("POST", "/one", chunk_bytes=1)[: -len(b"0\r\n\r\n")]
    client, _call = await asked(stage, app, head)
    await client.send(b"3\r\nabc\r\n0\r\n\r\n")
    reply = await client.read_reply()
    assert (reply.status, error_code_of(reply)) == (400, BadBodyError.code)
    assert await client.read_to_end() == b""


async def test_a_second_request_in_one_loan_is_executed_by_nobody(
    stage: Stage, app: HeldApp, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The safeguard behind the scanner: a body that llhttp sees end before the scanner does."""

    class EndlessBody(RequestBody):
        def feed(self, data: bytes) -> int:
            return len(data)

    monkeypatch.setattr(exchange_module, "RequestBody", EndlessBody)
    head = request_bytes("POST", "/one", chunk_bytes=1)[: -len(b"0\r\n\r\n")]
    client, call = await asked(stage, app, head)
    await client.send(chunked(b"abc", 3) + EVIL)
    reply = await client.read_reply()
    assert (reply.status, error_code_of(reply)) == (400, BadBodyError.code)
    assert await client.read_to_end() == b""
    assert len(app.calls) == 1
    assert await call.read_body() is None


# --- limits


@pytest.mark.parametrize("by_chunks", [False, True])
@pytest.mark.parametrize("piece_bytes", [0, 9000])
async def test_a_body_of_exactly_the_limit_is_served(
    stage: Stage, app: HeldApp, piece_bytes: int, *, by_chunks: bool
) -> None:
    body = pattern_of("edge", LIMIT)
    client = await stage.connect()
    await client.send(post(body, by_chunks=by_chunks), piece_bytes=piece_bytes)
    call = await app.call()
    assert await call.read_body() == body
    await call.reply(b"ok")
    assert (await client.read_reply()).status == 200
    await serve_next(client, app, 1)


async def test_an_announced_body_over_the_limit_is_refused_before_the_application(
    stage: Stage, app: HeldApp
) -> None:
    client = await stage.connect()
    await client.send(post(bytes(LIMIT + 1), by_chunks=False))
    reply = await client.read_reply()
    assert (reply.status, error_code_of(reply)) == (413, BodyTooLargeError.code)
    assert not app.calls
    await serve_next(client, app, 0)


@pytest.mark.parametrize("piece_bytes", [0, 9000])
async def test_a_chunked_body_over_the_limit_is_refused_and_ends_the_connection(
    stage: Stage, app: HeldApp, piece_bytes: int
) -> None:
    client = await stage.connect()
    await client.send(post(bytes(LIMIT + 1), by_chunks=True), piece_bytes=piece_bytes)
    reply = await client.read_reply()
    assert (reply.status, error_code_of(reply)) == (413, BodyTooLargeError.code)
    assert reply.headers[-1] == ("connection", "close")
    assert await client.read_to_end() == b""
    call = await app.call()
    assert await call.read_body() is None
