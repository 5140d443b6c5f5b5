"""Applications that answer with an error: one refusal, and a guard around any application."""

from __future__ import annotations

import asyncio
import json
import logging

import pytest

from sessions.errors.group import NotReadyError
from sessions.errors.protocol import BodyTooLargeError
from sessions.shard.refusal import Guarded, Refusal
from sessions.wire.refusals import refusal_body_of
from tests.support.apps import Message, Receive, Send

HTTP: Message = {"type": "http", "path": "/one", "method": "GET"}


class Wire:
    """The server's side of one call."""

    def __init__(self) -> None:
        self.sent: list[Message] = []
        self.received: list[Message] = []

    async def receive(self) -> Message:
        assert self.received, "the body must be left unread"
        return self.received.pop(0)

    async def send(self, message: Message) -> None:
        self.sent.append(message)

    @property
    def status(self) -> int:
        status: int = self.sent[0]["status"]
        return status


@pytest.fixture
def wire() -> Wire:
    return Wire()


@pytest.mark.parametrize("error", [BodyTooLargeError("too much"), NotReadyError("later")])
async def test_a_refusal_is_the_error_in_the_one_shape(
    wire: Wire, error: BodyTooLargeError | NotReadyError
) -> None:
    await Refusal(error)(HTTP, wire.receive, wire.send)
    start, body = wire.sent
    assert (start["type"], start["status"]) == ("http.response.start", error.status)
    assert body == {"type": "http.response.body", "body": error.body}
    headers = [(name.decode(), value.decode()) for name, value in start["headers"]]
    assert headers == [*error.headers, ("content-length", str(len(error.body)))]


async def test_a_refusal_on_the_path_of_mcp_is_an_error_of_json_rpc_too(wire: Wire) -> None:
    error = NotReadyError("later")
    await Refusal(error)({**HTTP, "raw_path": b"/mcp"}, wire.receive, wire.send)
    assert wire.sent[1]["body"] == refusal_body_of(error, b"/mcp") != error.body
    length = dict(wire.sent[0]["headers"])[b"content-length"]
    assert int(length) == len(wire.sent[1]["body"])


async def test_a_guarded_application_is_left_alone_while_it_does_not_fail(wire: Wire) -> None:
    async def app(scope: Message, receive: Receive, send: Send) -> None:
        assert scope is HTTP
        assert await receive() == {"type": "http.request", "body": b"in"}
        await send({"type": "http.response.start", "status": 204, "headers": []})
        await send({"type": "http.response.body", "body": b""})

    wire.received = [{"type": "http.request", "body": b"in"}]
    await Guarded(app)(HTTP, wire.receive, wire.send)
    assert [message["type"] for message in wire.sent] == [
        "http.response.start",
        "http.response.body",
    ]
    assert wire.status == 204


async def test_an_exception_becomes_a_500_that_tells_the_client_nothing_of_it(
    wire: Wire, caplog: pytest.LogCaptureFixture
) -> None:
    async def app(_scope: Message, _receive: Receive, _send: Send) -> None:
        raise RuntimeError("a secret")

    with caplog.at_level(logging.ERROR):
        await Guarded(app)(HTTP, wire.receive, wire.send)
    assert wire.status == 500
    error = json.loads(wire.sent[1]["body"])["error"]
    assert (error["type"], error["code"]) == ("server_error", "internal_error")
    assert "secret" not in wire.sent[1]["body"].decode()
    assert "path=/one" in caplog.text
    assert "a secret" in caplog.text


async def test_an_exception_in_a_reply_is_passed_on_so_that_the_reply_is_cut(wire: Wire) -> None:
    async def app(_scope: Message, _receive: Receive, send: Send) -> None:
        await send({"type": "http.response.start", "status": 200, "headers": []})
        raise RuntimeError("too late")

    with pytest.raises(RuntimeError, match="too late"):
        await Guarded(app)(HTTP, wire.receive, wire.send)
    assert len(wire.sent) == 1


async def test_an_application_that_sends_no_reply_gives_a_500_in_the_one_shape(
    wire: Wire, caplog: pytest.LogCaptureFixture
) -> None:
    async def app(_scope: Message, receive: Receive, _send: Send) -> None:
        await receive()

    wire.received = [{"type": "http.request", "body": b""}]
    with caplog.at_level(logging.ERROR):
        await Guarded(app)(HTTP, wire.receive, wire.send)
    assert wire.status == 500
    assert json.loads(wire.sent[1]["body"])["error"]["code"] == "internal_error"
    assert "application sent no reply path=/one" in caplog.text


async def test_a_client_that_left_needs_no_reply(
    wire: Wire, caplog: pytest.LogCaptureFixture
) -> None:
    async def app(_scope: Message, receive: Receive, _send: Send) -> None:
        await receive()

    wire.received = [{"type": "http.disconnect"}]
    await Guarded(app)(HTTP, wire.receive, wire.send)
    assert (wire.sent, caplog.text) == ([], "")


async def test_a_message_that_the_server_refused_begins_no_reply(wire: Wire) -> None:
    async def send(message: Message) -> None:
        if not wire.sent and message["type"] != "http.response.start":
            raise RuntimeError("a body before its head")
        await wire.send(message)

    async def app(_scope: Message, _receive: Receive, send: Send) -> None:
        await send({"type": "http.response.body", "body": b"first"})

    await Guarded(app)(HTTP, wire.receive, send)
    assert wire.status == 500


async def test_a_cancellation_passes_through(wire: Wire) -> None:
    async def app(_scope: Message, _receive: Receive, _send: Send) -> None:
        raise asyncio.CancelledError

    with pytest.raises(asyncio.CancelledError):
        await Guarded(app)(HTTP, wire.receive, wire.send)
    assert not wire.sent


async def test_a_failing_lifespan_is_the_servers_to_handle(wire: Wire) -> None:
    async def app(_scope: Message, _receive: Receive, _send: Send) -> None:
        raise RuntimeError("cannot start")

    with pytest.raises(RuntimeError, match="cannot start"):
        await Guarded(app)({"type": "lifespan"}, wire.receive, wire.send)
    assert not wire.sent
