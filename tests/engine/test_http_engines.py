import asyncio
import gzip
import socket
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

import pytest

from sessions.engine.engine import EngineReply, EngineRequest, Headers
from sessions.engine.http_engines import HttpEngines
from sessions.errors import (
    ClientVisibleError,
    EngineReplyUnusableError,
    EngineTimeoutError,
    EngineUnreachableError,
    RequestError,
)
from sessions.tokens.tokenizer import load_tokenizer
from tests.support.waiting import wait_until_async

OK = b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok"


class Server:
    """A raw HTTP server: keeps what it got, answers with given bytes, None for silence."""

    def __init__(self, *answers: bytes | None) -> None:
        self.answers = list(answers)
        self.heads: list[list[bytes]] = []
        self.bodies: list[bytes] = []
        self.connections = 0
        self.port = 0

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        try:
            while True:
                head = await reader.readuntil(b"\r\n\r\n")
                lines = head.removesuffix(b"\r\n\r\n").split(b"\r\n")
                named = dict(line.lower().split(b": ", 1) for line in lines[1:])
                self.heads.append(lines)
                self.bodies.append(await reader.readexactly(int(named.get(b"content-length", 0))))
                answer = self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]
                if answer is None:
                    await reader.read()
                    return
                writer.write(answer)
                await writer.drain()
                if b"connection: close" in answer:
                    return
        except asyncio.IncompleteReadError:
            return
        finally:
            writer.close()


@asynccontextmanager
async def engine_at(
    *answers: bytes | None, prefix: str = "", **limits: float
) -> AsyncIterator[tuple[HttpEngines, Server]]:
    made = Server(*answers)
    async with await asyncio.start_server(made.serve, "127.0.0.1", 0) as server:
        made.port = server.sockets[0].getsockname()[1]
        engine = HttpEngines(
            [f"http://127.0.0.1:{made.port}{prefix}"],
            timeout_s=limits.get("timeout_s", 30),
            connect_timeout_s=limits.get("connect_timeout_s", 30),
        )
        try:
            yield engine, made
        finally:
            await engine.close()


def request(target: bytes = b"/v1/x", *headers: tuple[bytes, bytes], **more: Any) -> EngineRequest:  # noqa: ANN401
    return EngineRequest(
        method=more.get("method", "POST"),
        target=target,
        headers=headers,
        body=more.get("body", b"body"),
    )


def reply_with(*headers: bytes, body: bytes = b"") -> bytes:
    lines = [b"HTTP/1.1 200 OK", *headers, b"content-length: %d" % len(body), b"", body]
    return b"\r\n".join(lines)


async def test_a_request_is_sent_as_it_is_and_nothing_is_added():
    async with engine_at(OK) as (engine, server):
        reply = await engine.exchange(request(b"/a%2Fb%20c?q=%41", (b"x-a", b"1"), (b"x-a", b"2")))
        assert (reply.status, reply.body) == (200, b"ok")
        first, *headers = server.heads[0]
        assert first == b"POST /a%2Fb%20c?q=%41 HTTP/1.1"
        assert sorted(line.lower() for line in headers) == [
            b"content-length: 4",
            b"host: 127.0.0.1:%d" % server.port,
            b"x-a: 1",
            b"x-a: 2",
        ]
        assert server.bodies == [b"body"]


@pytest.mark.parametrize("prefix", ["", "/", "/v1", "/v1/"])
async def test_a_v1_at_the_end_of_the_base_url_is_not_doubled(prefix: str):
    async with engine_at(OK, prefix=prefix) as (engine, server):
        await engine.exchange(request(b"/v1/models", method="GET"))
        assert server.heads[0][0] == b"GET /v1/models HTTP/1.1"


async def test_a_prefix_of_the_base_url_comes_first():
    async with engine_at(OK, prefix="/pool/v1") as (engine, server):
        await engine.exchange(request(b"/health"))
        assert server.heads[0][0] == b"POST /pool/health HTTP/1.1"


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
        assert not any(line.lower().startswith(b"cookie") for head in server.heads for line in head)


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


async def error_of(exchange: Callable[[], Any]) -> ClientVisibleError:
    with pytest.raises(ClientVisibleError) as caught:
        await exchange()
    return caught.value


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
        b"HTTP/1.1 200 OK\r\ncontent-length: 9\r\nconnection: close\r\n\r\nok",
        b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\nconnection: close\r\n\r\n9\r\nok",
        b"connection: close\r\n\r\n",
        b"HTTP/1.1 20",
    ],
    ids=["short body", "short chunk", "no HTTP", "cut head"],
)
async def test_a_reply_that_breaks_off_is_a_502_and_the_next_one_is_served(answer: bytes):
    cut = answer if b"close" in answer else answer + b" connection: close"
    async with engine_at(cut, OK) as (engine, _):
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
    async with engine_at(None, timeout_s=0.05) as (engine, _):
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
    async with engine_at(None, OK) as (engine, server):
        task = asyncio.create_task(engine.exchange(request()))
        await wait_until_async(lambda: bool(server.heads), "the engine got the request")
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert (await engine.exchange(request())).body == b"ok"


async def test_many_exchanges_run_at_once():
    async with engine_at(OK) as (engine, server):
        replies: list[EngineReply] = await asyncio.gather(
            *(engine.exchange(request()) for _ in range(150))
        )
        assert {reply.body for reply in replies} == {b"ok"}
        assert server.connections > 100


async def test_the_simulated_engine_is_spoken_to():
    from sessions.sim.server import simulated_engine  # noqa: PLC0415 - only this test needs it

    async with simulated_engine("sim:", load_tokenizer("pkg:qwen3")) as url:
        engine = HttpEngines([url], timeout_s=30, connect_timeout_s=30)
        reply = await engine.exchange(request(b"/v1/models", method="GET", body=b""))
        assert reply.status == 200
        assert b'"sim"' in reply.body
        await engine.close()


async def test_the_body_goes_to_the_sink_that_its_head_opens():
    got: list[object] = []

    class Sink:
        def feed(self, piece: memoryview) -> bool:
            got.append(bytes(piece))
            return False

        async def wait_room(self) -> None:
            got.append("waited")

    def open_sink(status: int, _: Headers) -> Sink:
        got.append(status)
        return Sink()

    async with engine_at(OK) as (engine, _):
        reply = await engine.exchange(request(), open_sink)
        assert (reply.body, reply.is_sunk) == (b"", True)
        assert got == [200, b"ok"]
        assert (await engine.exchange(request(), lambda *_: None)).body == b"ok"
