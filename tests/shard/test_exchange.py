"""An exchange on a lone shard and behind a router, on both loops: when it is over (rules 10-12)."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from sessions.errors import BadBodyError, BodyTooLargeError
from sessions.lending.cells import CellState
from sessions.lending.group import Group
from sessions.shard import exchange as exchange_module
from sessions.shard.exchange import LEFTOVER_LIMIT_BYTES
from sessions.shard.request_body import RequestBody
from tests.support.apps import pattern_of
from tests.support.fronts import error_code_of
from tests.support.held_app import Call, HeldApp
from tests.support.loops import BOTH_LOOPS, Backend, turn
from tests.support.members import group_of
from tests.support.raw import AsyncRawConnection, chunked, request_bytes
from tests.support.stages import Stage, open_stage
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


@pytest.fixture
def app() -> HeldApp:
    return HeldApp()


@pytest.fixture(params=["lone", "lent"])
async def stage(group: Group, app: HeldApp, request: pytest.FixtureRequest) -> AsyncIterator[Stage]:
    async with open_stage(group, app, has_router=request.param == "lent") as opened:
        yield opened
        app.end_all()


def post(body: bytes, *, by_chunks: bool, path: str = "/one") -> bytes:
    return request_bytes("POST", path, body=body, chunk_bytes=1000 if by_chunks else 0)


async def asked(
    stage: Stage, app: HeldApp, data: bytes, number: int = 0
) -> tuple[AsyncRawConnection, Call]:
    """A new client that sent this, and the call that it led to."""
    client = await stage.connect()
    await client.send(data)
    return client, await app.call(number)


async def serve_next(client: AsyncRawConnection, app: HeldApp, number: int) -> None:
    """Prove that the connection carries another exchange."""
    await client.send(request_bytes("GET", f"/next{number}"))
    call = await app.call(number)
    assert call.scope["path"] == f"/next{number}"
    await call.reply(b"next")
    assert (await client.read_reply()).body == b"next"
    call.end()
    assert len(app.calls) == number + 1


def cell_of(stage: Stage) -> CellState:
    """What the cell says of the current loan of slot 0."""
    connection = next(iter(stage.front.connections))
    return stage.group.cells.read(connection.slot.number, connection.slot.generation)


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


async def test_an_exchange_lasts_until_its_reply_is_complete(stage: Stage, app: HeldApp) -> None:
    client, call = await asked(stage, app, GET)
    await call.start()
    await call.write(b"first")
    await client.send(request_bytes("GET", "/two"))
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
    limits = stage.exchanges[0].transport._transport.get_write_buffer_limits()  # type: ignore[attr-defined]
    assert min(limits) > 0, "the limits are as before"
    await second.reply(b"two")
    assert (await client.read_reply()).body == b"two"


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
