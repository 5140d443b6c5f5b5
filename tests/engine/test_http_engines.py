import asyncio
import gzip
import socket

import pytest

from sessions.engine.http_engines import HttpEngines
from sessions.errors.client_visible import RequestError, UnprocessableError
from sessions.errors.engine import (
    EngineReplyUnusableError,
    EngineTimeoutError,
    EngineUnreachableError,
)
from sessions.tokens.tokenizer import load_tokenizer
from tests.support.engine_clients import SILENCE, client_of, engine_at, error_of, request
from tests.support.loops import BOTH_LOOPS, Backend, turn
from tests.support.raw_engine import (
    OK,
    Answer,
    Asked,
    Then,
    raw_engine,
)
from tests.support.raw_replies import KeepingSink, length_reply
from tests.support.waiting import wait_until_async


@pytest.fixture(params=BOTH_LOOPS)
def anyio_backend(request: pytest.FixtureRequest) -> Backend:
    backend: Backend = request.param
    return backend


def reply_with(*headers: bytes, body: bytes = b"") -> bytes:
    lines = [b"HTTP/1.1 200 OK", *headers, b"content-length: %d" % len(body), b"", body]
    return b"\r\n".join(lines)


async def test_a_request_is_sent_as_it_is_and_nothing_is_added():
    async with engine_at(OK) as (engine, server):
        reply = await engine.exchange(request(b"/a%2Fb%20c?q=%41", (b"x-a", b"1"), (b"x-a", b"2")))
        assert (reply.status, reply.body) == (200, b"ok")
        first, *headers = server.asked[0].lines
        assert first == b"POST /a%2Fb%20c?q=%41 HTTP/1.1"
        assert sorted(line.lower() for line in headers) == [
            b"content-length: 4",
            b"host: 127.0.0.1:%d" % server.port,
            b"x-a: 1",
            b"x-a: 2",
        ]
        assert server.asked[0].body == b"body"


@pytest.mark.parametrize("prefix", ["", "/", "/v1", "/v1/"])
async def test_a_v1_at_the_end_of_the_base_url_is_not_doubled(prefix: str):
    async with engine_at(OK, prefix=prefix) as (engine, server):
        await engine.exchange(request(b"/v1/models", method="GET"))
        assert server.asked[0].lines[0] == b"GET /v1/models HTTP/1.1"


async def test_a_prefix_of_the_base_url_comes_first():
    async with engine_at(OK, prefix="/pool/v1") as (engine, server):
        await engine.exchange(request(b"/health"))
        assert server.asked[0].lines[0] == b"POST /pool/health HTTP/1.1"


async def test_reply_headers_are_lower_case_in_order_and_repeated():
    answer = reply_with(b"X-A: 1", b"Set-Cookie: a=1", b"Set-Cookie: b=2")
    async with engine_at(answer) as (engine, _):
        reply = await engine.exchange(request())
        assert list(reply.headers)[:3] == [
            (b"x-a", b"1"),
            (b"set-cookie", b"a=1"),
            (b"set-cookie", b"b=2"),
        ]


async def test_connections_are_kept_and_cookies_are_not():
    async with engine_at(reply_with(b"set-cookie: a=1")) as (engine, server):
        for _ in range(3):
            await engine.exchange(request())
        assert server.connections == 1
        assert not any(
            line.lower().startswith(b"cookie") for asked in server.asked for line in asked.lines
        )


async def test_redirects_are_replies():
    answer = b"HTTP/1.1 307 Temporary Redirect\r\nlocation: http://x/\r\ncontent-length: 0\r\n\r\n"
    async with engine_at(answer) as (engine, _):
        reply = await engine.exchange(request())
        assert (reply.status, reply.header(b"location")) == (307, b"http://x/")


async def test_proxies_of_the_environment_are_ignored(monkeypatch: pytest.MonkeyPatch):
    for name in ("HTTP_PROXY", "http_proxy", "ALL_PROXY"):
        monkeypatch.setenv(name, "http://127.0.0.1:9")
    async with engine_at(OK) as (engine, _):
        assert (await engine.exchange(request())).body == b"ok"


async def test_a_chunked_body_and_a_coded_one_are_read_whole():
    chunked = b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n1\r\no\r\n1\r\nk\r\n0\r\n\r\n"
    coded = reply_with(b"content-encoding: gzip", body=gzip.compress(b"ok"))
    async with engine_at(chunked, coded) as (engine, _):
        assert (await engine.exchange(request())).body == b"ok"
        assert (await engine.exchange(request())).body == b"ok"


async def test_an_engine_that_does_not_listen_is_a_502():
    async with engine_at(OK) as (engine, _):
        pass
    engine = HttpEngines(["http://127.0.0.1:1"], timeout_s=30, connect_timeout_s=30)
    error = await error_of(lambda: engine.exchange(request()))
    assert isinstance(error, EngineUnreachableError)
    assert (error.status, error.type) == (502, "upstream_error")
    assert "127.0.0.1" not in error.message
    await engine.close()


@pytest.mark.parametrize(
    "answer",
    [
        b"HTTP/1.1 200 OK\r\ncontent-length: 9\r\n\r\nok",
        b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n9\r\nok",
        b"no HTTP\r\n\r\n",
        b"HTTP/1.1 20",
    ],
    ids=["short body", "short chunk", "no HTTP", "cut head"],
)
async def test_a_reply_that_breaks_off_is_a_502_and_the_next_one_is_served(answer: bytes):
    async with engine_at(Answer(answer, Then.CLOSE), OK) as (engine, _):
        error = await error_of(lambda: engine.exchange(request()))
        assert isinstance(error, EngineUnreachableError)
        assert (await engine.exchange(request())).body == b"ok"


async def test_a_connection_that_takes_too_long_is_a_502():
    with socket.socket() as full:
        full.bind(("127.0.0.1", 0))
        full.listen(0)
        port = full.getsockname()[1]
        with socket.create_connection(("127.0.0.1", port)):  # fills the backlog
            engine = HttpEngines([f"http://127.0.0.1:{port}"], timeout_s=30, connect_timeout_s=0.05)
            error = await error_of(lambda: engine.exchange(request()))
            assert isinstance(error, EngineUnreachableError)
            assert "in time" in error.message
            await engine.close()


async def test_an_engine_that_stands_still_is_a_504():
    async with engine_at(SILENCE, timeout_s=0.05) as (engine, _):
        error = await error_of(lambda: engine.exchange(request()))
        assert isinstance(error, EngineTimeoutError)
        assert error.status == 504


@pytest.mark.parametrize("coding", [b"br", b"gzip"])
async def test_a_body_that_cannot_be_decoded_is_a_502(coding: bytes):
    async with engine_at(reply_with(b"content-encoding: " + coding, body=b"junk")) as (engine, _):
        error = await error_of(lambda: engine.exchange(request()))
        assert isinstance(error, EngineReplyUnusableError)
        assert engine.in_use == [0]


async def test_a_target_that_makes_no_url_is_the_clients_fault():
    async with engine_at(OK) as (engine, _):
        error = await error_of(lambda: engine.exchange(request(b"/" + b"x" * 70_000)))
        assert isinstance(error, RequestError)
        assert error.status == 400


async def test_a_cancelled_exchange_leaves_the_pool_usable():
    async with engine_at(SILENCE, OK) as (engine, server):
        task = asyncio.create_task(engine.exchange(request()))
        await wait_until_async(lambda: bool(server.asked), "the engine got the request")
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert (await engine.exchange(request())).body == b"ok"


async def test_the_simulated_engine_is_spoken_to():
    from sessions.sim.server import simulated_engine  # noqa: PLC0415 - only this test needs it

    async with simulated_engine("sim:", load_tokenizer("pkg:qwen3")) as url:
        engine = HttpEngines([url], timeout_s=30, connect_timeout_s=30)
        reply = await engine.exchange(request(b"/v1/models", method="GET", body=b""))
        assert reply.status == 200
        assert b'"sim"' in reply.body
        await engine.close()


async def test_head_has_no_body_and_get_has_no_length():
    answer = b"HTTP/1.1 200 OK\r\ncontent-length: 9\r\n\r\n"
    async with engine_at(answer, OK) as (engine, server):
        reply = await engine.exchange(request(method="HEAD", body=b""))
        assert (reply.body, reply.header(b"content-length")) == (b"", b"9")
        assert (await engine.exchange(request(method="GET", body=b""))).body == b"ok"
        assert server.connections == 1
        assert len(server.asked[1].lines) == 2  # the request line and the host


async def test_the_body_goes_to_the_sink_that_its_head_opens():
    sink = KeepingSink()
    async with engine_at(OK) as (engine, _):
        reply = await engine.exchange(request(), sink.open)
        assert (reply.status, reply.body, reply.is_sunk) == (200, b"", True)
        assert bytes(sink.data) == b"ok"


async def test_a_sink_without_room_holds_the_engine_back():
    size = 32 << 20  # more than all buffers between the two
    has_written = asyncio.Event()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(length_reply(b"x" * size))
        await writer.drain()
        has_written.set()
        writer.close()

    async with await asyncio.start_server(serve, "127.0.0.1", 0) as server:
        port = server.sockets[0].getsockname()[1]
        engine = HttpEngines([f"http://127.0.0.1:{port}"], timeout_s=30, connect_timeout_s=30)
        sink = KeepingSink(has_room=lambda count: count > 0)
        sink.room.clear()
        task = asyncio.create_task(engine.exchange(request(method="GET", body=b""), sink.open))
        await wait_until_async(lambda: sink.waits == 1, "the exchange waits for room")
        before = len(sink.data)
        await turn(100)
        assert (len(sink.data), has_written.is_set()) == (before, False)
        sink.room.set()
        assert (await task).is_sunk
        assert len(sink.data) == size
        await engine.close()


async def test_an_error_of_the_sink_is_the_exchanges_and_closes_the_connection():
    sink = KeepingSink(error=UnprocessableError("no room"))
    async with engine_at(OK) as (engine, server):
        with pytest.raises(UnprocessableError, match="no room"):
            await engine.exchange(request(), sink.open)
        await wait_until_async(lambda: server.open_count == 0, "the connection is closed")
        assert engine.in_use == [0]


# --- once more


@pytest.mark.parametrize("then", [Then.CLOSE, Then.RESET])
async def test_a_request_whose_reused_connection_died_unheard_is_sent_once_more(then: Then):
    async with engine_at(OK, Answer(b"", then), OK) as (engine, server):
        await engine.exchange(request())
        assert (await engine.exchange(request(body=b"again"))).body == b"ok"
        assert [asked.body for asked in server.asked] == [b"body", b"again", b"again"]
        assert [asked.connection for asked in server.asked] == [0, 0, 1]


async def test_it_is_sent_once_more_on_a_new_connection_although_others_idle():
    def answer_of(asked: Asked) -> Answer:
        is_first = [other.connection for other in server.asked].count(asked.connection) == 1
        return Answer(OK) if is_first else Answer(b"", Then.CLOSE)

    async with raw_engine(answer_of) as server:
        engine = client_of(server)
        server.gate.clear()
        both = [asyncio.create_task(engine.exchange(request())) for _ in range(2)]
        await wait_until_async(lambda: len(server.asked) == 2, "two connections are used")
        server.gate.set()
        await asyncio.gather(*both)
        assert engine.idle_count == 2
        assert (await engine.exchange(request())).body == b"ok"
        assert [asked.connection for asked in server.asked[2:]] in ([0, 2], [1, 2])
        await engine.close()


async def test_it_is_not_sent_a_third_time():
    async with engine_at(OK, Answer(b"", Then.CLOSE)) as (engine, server):
        await engine.exchange(request())
        assert isinstance(
            await error_of(lambda: engine.exchange(request())), EngineUnreachableError
        )
        assert len(server.asked) == 3


async def test_a_new_connection_that_died_is_an_error_at_once():
    async with engine_at(Answer(b"", Then.CLOSE)) as (engine, server):
        assert isinstance(
            await error_of(lambda: engine.exchange(request())), EngineUnreachableError
        )
        assert len(server.asked) == 1


async def test_a_request_of_whose_reply_a_byte_came_is_not_sent_again():
    async with engine_at(OK, Answer(b"H", Then.CLOSE)) as (engine, server):
        await engine.exchange(request())
        assert isinstance(
            await error_of(lambda: engine.exchange(request())), EngineUnreachableError
        )
        assert len(server.asked) == 2


async def test_a_request_that_timed_out_is_not_sent_again():
    async with engine_at(OK, SILENCE, timeout_s=0.05) as (engine, server):
        await engine.exchange(request())
        assert isinstance(await error_of(lambda: engine.exchange(request())), EngineTimeoutError)
        assert len(server.asked) == 2


async def test_a_connection_that_ended_while_it_idled_costs_nothing():
    async with engine_at(OK) as (engine, server):
        await engine.exchange(request())
        server.end_connections()
        await wait_until_async(lambda: engine.idle_count == 0, "it is closed at once")
        assert (await engine.exchange(request())).body == b"ok"
        assert len(server.asked) == 2


@pytest.mark.parametrize("prefix", ["", "/pool"])
async def test_a_header_that_would_break_its_line_reaches_no_engine(prefix: str):
    async with engine_at(OK, prefix=prefix) as (engine, server):
        error = await error_of(lambda: engine.exchange(request(b"/x", (b"a", b"b\r\nc: d"))))
        assert isinstance(error, RequestError)
        assert (server.connections, engine.in_use) == (0, [0])
