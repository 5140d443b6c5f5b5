"""Requests and replies are those of a uvicorn: scopes, reply bytes, and our errors for failures."""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
from collections.abc import Callable
from typing import Any, cast

import pytest
import uvicorn
from hypothesis import given, settings
from hypothesis import strategies as st
from uvicorn.protocols.http.flow_control import FlowControl
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol, RequestResponseCycle
from uvicorn.server import ServerState

from sessions.errors.client_visible import InternalError
from sessions.shard.cycle import Cycle, Service, scope_of
from sessions.wire.gate import neutral_head, neutralise_upgrade, read_head
from sessions.wire.head import Head
from tests.support.apps import Message, Receive, Send
from tests.support.request_heads import CONNECTION, raw_of

App = Callable[[Message, Receive, Send], Any]
ADDRESS = ("127.0.0.1", 1)
DEFAULT = [(b"date", b"Mon, 30 Nov 2026 07:00:00 GMT"), (b"Server", b"sessile")]


class Wire(asyncio.Transport):
    """Keeps what is written."""

    def __init__(self) -> None:
        super().__init__({"sockname": ADDRESS, "peername": ADDRESS})
        self.written = b""
        self.is_closed = False

    def write(self, data: bytes | bytearray | memoryview) -> None:
        self.written += bytes(data)

    def close(self) -> None:
        self.is_closed = True

    def is_closing(self) -> bool:
        return self.is_closed


async def nothing(scope: Message, receive: Receive, send: Send) -> None:
    """An application that answers nothing."""


def head_of(raw: bytes) -> Head:
    head = read_head(raw, 0, 65536)
    assert head is not None
    return neutral_head(head)


def service_of(app: App = nothing, **app_state: object) -> Service:
    state = ServerState()
    state.default_headers = DEFAULT
    return Service(cast("Any", app), state, app_state)


class Stock:
    """A stock uvicorn that reads a request."""

    def __init__(self, raw: bytes, app_state: dict[str, object]) -> None:
        config = uvicorn.Config(cast("Any", nothing), http="httptools", log_config=None)
        config.load()
        self.protocol = HttpToolsProtocol(config, ServerState(), app_state)
        self.protocol.connection_made(Wire())
        self.protocol.data_received(raw)

    async def end(self) -> None:
        await asyncio.gather(*self.protocol.tasks)


FIRSTS = [
    b"GET / HTTP/1.1",
    b"GET /a/%7Eb%2Fc%zz?d=%20&e?f HTTP/1.1",
    b"POST //a?? HTTP/1.0",
    b"HEAD /a? HTTP/1.1",
    b"PUT http://h/x HTTP/1.1",
    b"PUT HTTPS://h:1/x%41?y HTTP/1.1",
    b'PURGE /a;b=|"<> HTTP/1.1',
]
LINES = [
    b"A: b ",
    b"a:\xff",
    b"Content-Length: 3",
    b"Transfer-Encoding: chunked",
    b"Expect: 100-continue",
    b"Upgrade: h2c",
    b"Connection: Upgrade, HTTP2-Settings",
]


@pytest.mark.parametrize("first", FIRSTS)
@pytest.mark.parametrize("lines", [[], *([line] for line in LINES), LINES[4:], *CONNECTION])
async def test_the_scope_and_the_rest_are_what_a_uvicorn_makes_of_the_same_bytes(
    first: bytes, lines: list[bytes], caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.CRITICAL)
    if b"HTTP/1.0" in first and b"Transfer-Encoding: chunked" in lines:
        return  # refused by the gate
    raw = raw_of(*lines, first=first)
    head = read_head(raw, 0, 65536)
    assert head is not None
    service = service_of(key="value")
    stock = Stock(neutralise_upgrade(raw, head), {"key": "value"})
    scope = scope_of(service, neutral_head(head), ADDRESS, ADDRESS)
    assert scope == cast("Any", stock.protocol.scope)
    assert scope["state"] is not service.app_state
    cycle = Cycle(service, head, scope, Wire(), FlowControl(Wire()), on_response=lambda: None)
    theirs = stock.protocol.cycle
    assert cycle.keep_alive is theirs.keep_alive
    if head.http_version == "1.1":
        assert cycle.waiting_for_100_continue is theirs.waiting_for_100_continue
    else:
        assert not cycle.waiting_for_100_continue
    await stock.end()


NAMES = st.sampled_from(
    [b"A", b"content-length", b"Content-Length", b"Transfer-Encoding", b"CONNECTION", b"a b", b""]
)
VALUES = st.sampled_from(
    [b"", b"x", b"0", b"3", b"chunked", b"Chunked", b"close", b"x, Close", b"a\r\nb", b"\xff"]
)
STARTS = st.builds(
    lambda status, headers: {
        "type": "http.response.start",
        "status": status,
        **({} if headers is None else {"headers": headers}),
    },
    st.sampled_from([200, 204, 304, 413, 599, 600]),
    st.one_of(st.none(), st.lists(st.tuples(NAMES, VALUES), max_size=3)),
)
BODIES = st.builds(
    lambda body, more: {"type": "http.response.body", "body": body, "more_body": more},
    st.sampled_from([b"", b"abc"]),
    st.booleans(),
)


async def told(cycle: RequestResponseCycle, messages: list[Message]) -> list[str]:
    """What the messages led to, one by one."""
    answers = []
    for message in messages:
        try:
            await cycle.send(cast("Any", message))
        except (RuntimeError, KeyError, ValueError) as error:
            answers.append(repr(error))
        else:
            answers.append("")
    return answers


@settings(derandomize=True, deadline=None, max_examples=600)
@given(
    first=st.sampled_from([b"GET / HTTP/1.1", b"HEAD / HTTP/1.1"]),
    lines=st.sampled_from([[], [b"Connection: close"]]),
    messages=st.lists(st.one_of(STARTS, BODIES), max_size=4),
    is_gone=st.booleans(),
)
def test_a_reply_is_byte_for_byte_that_of_a_uvicorn(
    first: bytes, lines: list[bytes], messages: list[Message], *, is_gone: bool
) -> None:
    async def play() -> None:
        head, service = head_of(raw_of(*lines, first=first)), service_of()
        ours, theirs = Wire(), Wire()
        ends: list[str] = []
        scope = scope_of(service, head, ADDRESS, ADDRESS)
        cycle = Cycle(
            service, head, scope, ours, FlowControl(ours), on_response=lambda: ends.append("ours")
        )
        stock = RequestResponseCycle(
            cast("Any", scope),
            theirs,
            FlowControl(theirs),
            logging.getLogger(),
            logging.getLogger(),
            False,  # noqa: FBT003 - no access log
            DEFAULT,
            asyncio.Event(),
            False,  # noqa: FBT003 - no 100
            head.keep_alive,
            lambda: ends.append("theirs"),
        )
        cycle.disconnected = stock.disconnected = is_gone
        assert await told(cycle, messages) == await told(stock, messages)
        assert ours.written == theirs.written
        assert ours.is_closed is theirs.is_closed
        assert ends.count("ours") == ends.count("theirs")
        for name in ("keep_alive", "response_started", "response_complete", "chunked_encoding"):
            assert getattr(cycle, name) == getattr(stock, name)
        assert cycle.expected_content_length == stock.expected_content_length

    asyncio.run(play())


async def test_a_reply_waits_while_the_buffer_is_full() -> None:
    cycle, wire = cycle_of(nothing)
    cycle.flow.pause_writing()
    start = asyncio.create_task(cycle.send({"type": "http.response.start", "status": 204}))
    await asyncio.sleep(0)
    assert not wire.written
    cycle.flow.resume_writing()
    await start
    assert wire.written


def test_the_date_of_a_reply_follows_the_servers() -> None:
    service = service_of()
    assert service.default_lines() is service.default_lines()
    service.state.default_headers = [(b"Date", b"later")]
    assert service.default_lines() == b"date: later\r\n"


def test_the_names_that_are_known_have_a_limit() -> None:
    service = service_of()
    for number in range(300):
        assert service.name_of(b"X-%d" % number) == b"x-%d" % number
    assert len(service._names) == 256
    with pytest.raises(RuntimeError, match="header name"):
        service.name_of(b"a b")


# --- applications that fail


def cycle_of(app: App, first: bytes = b"GET /one HTTP/1.1") -> tuple[Cycle, Wire]:
    service, wire, head = service_of(app), Wire(), head_of(raw_of(first=first))
    scope = scope_of(service, head, ADDRESS, ADDRESS)
    cycle = Cycle(service, head, scope, wire, FlowControl(wire), on_response=lambda: None)
    cycle.access_log = False  # pytest's handler would turn it on
    return cycle, wire


async def run(app: App) -> tuple[Cycle, Wire]:
    cycle, wire = cycle_of(app)
    tasks: set[asyncio.Task[None]] = set()
    task = asyncio.create_task(cycle.run(cast("Any", app), tasks))
    tasks.add(task)
    await task
    assert not tasks
    return cycle, wire


def failure_in(wire: Wire) -> str:
    head, _, body = wire.written.partition(b"\r\n\r\n")
    assert head.startswith(b"HTTP/1.1 500 ")
    code: str = json.loads(body)["error"]["code"]
    return code


async def test_an_exception_becomes_a_500_that_tells_the_client_nothing_of_it(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def app(scope: Message, receive: Receive, send: Send) -> None:
        raise ValueError("secret")

    _, wire = await run(app)
    assert failure_in(wire) == InternalError.code
    assert b"secret" not in wire.written
    assert "application failed path=/one" in caplog.text
    assert "secret" in caplog.text


async def test_no_reply_becomes_a_500(caplog: pytest.LogCaptureFixture) -> None:
    _, wire = await run(nothing)
    assert failure_in(wire) == InternalError.code
    assert not wire.is_closed
    assert "sent no reply" in caplog.text


BAD_STARTS: list[Message] = [
    {"status": 200, "headers": [(b"content-length", b"5"), (b"x-a", b"1\r\nx-b: 2")]},
    {"status": 200, "headers": [(b"transfer-encoding", b"chunked"), (b"a b", b"1")]},
    {"status": 200, "headers": [(b"content-length", b"five")]},
    {"status": 2000, "headers": []},
    {"status": 200, "headers": [("x-a", "1")]},
]


@pytest.mark.parametrize("has_access_log", [False, True])
@pytest.mark.parametrize("is_caught", [False, True])
@pytest.mark.parametrize("start", BAD_STARTS, ids=["value", "name", "length", "status", "text"])
async def test_a_head_that_cannot_be_sent_becomes_a_500(
    start: Message,
    caplog: pytest.LogCaptureFixture,
    *,
    is_caught: bool,
    has_access_log: bool,
) -> None:
    """A stock uvicorn ends the connection without a status there."""

    async def app(scope: Message, receive: Receive, send: Send) -> None:
        with contextlib.suppress(*([Exception] if is_caught else [])):
            await send({"type": "http.response.start", **start})

    cycle, wire = cycle_of(app)
    cycle.access_log = has_access_log
    await cycle.run(cast("Any", app), set())
    assert failure_in(wire) == InternalError.code
    assert wire.written.count(b"HTTP/1.1") == 1
    assert wire.written.count(b"content-length") == 1
    assert b"chunked" not in wire.written
    assert not wire.is_closed
    assert cycle.response_complete
    assert "application" in caplog.text


async def test_a_head_that_cannot_be_sent_becomes_a_500_for_an_old_client() -> None:
    async def app(scope: Message, receive: Receive, send: Send) -> None:
        await send({"type": "http.response.start", **BAD_STARTS[0]})

    cycle, wire = cycle_of(app, b"GET /one HTTP/1.0")
    await cycle.run(cast("Any", app), set())
    assert failure_in(wire) == InternalError.code
    assert cycle.response_complete
    assert wire.is_closed


async def test_an_exception_in_a_reply_cuts_it(caplog: pytest.LogCaptureFixture) -> None:
    async def app(scope: Message, receive: Receive, send: Send) -> None:
        await send({"type": "http.response.start", "status": 200})
        raise ValueError

    _, wire = await run(app)
    assert wire.is_closed
    assert wire.written.count(b"HTTP/1.1") == 1
    assert "application failed" in caplog.text


async def test_a_reply_that_is_left_unfinished_is_cut(caplog: pytest.LogCaptureFixture) -> None:
    async def app(scope: Message, receive: Receive, send: Send) -> None:
        await send({"type": "http.response.start", "status": 200})
        await send({"type": "http.response.body", "body": b"half", "more_body": True})

    _, wire = await run(app)
    assert wire.is_closed
    assert "left its reply unfinished" in caplog.text


async def test_a_client_that_left_needs_no_reply(caplog: pytest.LogCaptureFixture) -> None:
    cycle, wire = cycle_of(nothing)
    cycle.disconnected = True
    await cycle.run(cast("Any", nothing), set())
    assert (wire.written, wire.is_closed, caplog.text) == (b"", False, "")


async def test_a_task_that_is_cancelled_answers_and_ends(caplog: pytest.LogCaptureFixture) -> None:
    async def app(scope: Message, receive: Receive, send: Send) -> None:
        await asyncio.Event().wait()

    cycle, wire = cycle_of(app)
    tasks: set[asyncio.Task[None]] = set()
    task = asyncio.create_task(cycle.run(cast("Any", app), tasks))
    tasks.add(task)
    await asyncio.sleep(0)
    task.cancel()
    await task
    assert failure_in(wire) == InternalError.code
    assert not tasks
    assert "application failed" in caplog.text
