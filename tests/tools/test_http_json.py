"""JSON over HTTP: objects in, objects or errors out, and nothing for a client that left."""

import asyncio
from typing import Any

import httpx
import pytest
from starlette.requests import ClientDisconnect, Request
from starlette.types import Message, Receive, Scope, Send

from sessions.errors.client_visible import RequestError, UnprocessableError
from sessions.tools.http_json import (
    Answered,
    error_reply_of,
    json_reply_of,
    read_object,
    run_while_connected,
)
from tests.support.episodes import wait_for
from tests.support.rollouts import call


def request_of(body: bytes) -> Request:
    async def receive() -> Message:
        return {"type": "http.request", "body": body}

    return Request({"type": "http", "headers": [], "path": "/"}, receive)


async def test_an_object_is_read_and_an_empty_body_is_an_empty_one():
    assert await read_object(request_of(b'{"a": [1, 2.5, null]}')) == {"a": [1, 2.5, None]}
    assert await read_object(request_of(b"")) == {}


@pytest.mark.parametrize(
    "body",
    [b"[]", b"1", b"null", b"{", b"{'a': 1}", b"{}x", b'{"a": NaN}', b"\xff", b"[" * 100_000],
)
async def test_what_is_no_object_is_refused(body: bytes):
    with pytest.raises(RequestError, match="the body is not"):
        await read_object(request_of(body))


def test_replies_are_json_in_one_piece():
    reply = json_reply_of({"a": 1})
    assert (reply.status_code, reply.body) == (200, b'{"a":1}')
    assert reply.headers["content-type"] == "application/json"
    error = error_reply_of(UnprocessableError("no"), {"type": "http"})
    assert error.status_code == 422
    assert error.headers["x-should-retry"] == "false"
    assert error.headers["content-length"] == str(len(error.body))


class Client:
    """A client whose body was read; it may leave."""

    def __init__(self) -> None:
        self.has_left = asyncio.Event()
        self.asked = 0

    async def receive(self) -> Message:
        self.asked += 1
        await self.has_left.wait()
        return {"type": "http.disconnect"}


async def test_work_that_waits_for_nothing_does_not_ask_for_its_client():
    async def work() -> int:
        return 3

    client = Client()
    assert await run_while_connected(client.receive, work()) == 3
    assert client.asked == 0


async def test_work_that_lasts_is_done_for_a_client_that_stays():
    async def work() -> int:
        for _ in range(5):
            await asyncio.sleep(0)
        return 3

    assert await run_while_connected(Client().receive, work()) == 3


@pytest.mark.parametrize("how", ["client", "server"])
async def test_work_is_cancelled_and_ended_when_its_client_leaves_or_its_server_stops(how: str):
    steps: list[str] = []
    go_on = asyncio.Event()

    async def work() -> None:
        steps.append("begun")
        try:
            await asyncio.Event().wait()
        finally:
            await go_on.wait()
            steps.append("ended")

    client = Client()
    task = asyncio.create_task(run_while_connected(client.receive, work()))
    await wait_for(lambda: bool(client.asked))
    if how == "client":
        client.has_left.set()
    else:
        task.cancel()
    for _ in range(5):
        await asyncio.sleep(0)
    assert not task.done(), "what winds down is waited for"
    go_on.set()
    with pytest.raises(ClientDisconnect if how == "client" else asyncio.CancelledError):
        await task
    assert steps == ["begun", "ended"]


async def test_an_error_of_the_work_passes():
    async def work() -> None:
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        raise UnprocessableError("no")

    with pytest.raises(UnprocessableError):
        await run_while_connected(Client().receive, work())


def failing(error: Exception, *, has_begun: bool = False) -> Answered:
    async def app(_scope: Scope, _receive: Receive, send: Send) -> None:
        if has_begun:
            await send({"type": "http.response.start", "status": 200, "headers": []})
        raise error

    return Answered(app)


async def answer_of(app: Answered) -> httpx.Response:
    start, *pieces = await call(app, "POST", "/x")
    return httpx.Response(start["status"], content=b"".join(p["body"] for p in pieces))


async def test_errors_become_replies_and_our_own_faults_tell_nothing(
    caplog: pytest.LogCaptureFixture,
):
    told = await answer_of(failing(UnprocessableError("no")))
    assert (told.status_code, told.json()["error"]["message"]) == (422, "no")
    assert not caplog.records
    hidden = await answer_of(failing(ValueError("a secret")))
    assert (hidden.status_code, "secret" in hidden.text) == (500, False)
    assert "a secret" in caplog.text


async def test_nothing_is_sent_to_a_client_that_left():
    assert await call(failing(ClientDisconnect()), "POST", "/x") == []


async def test_a_reply_in_its_middle_is_left_to_the_server():
    with pytest.raises(ValueError, match="late"):
        await call(failing(ValueError("late"), has_begun=True), "POST", "/x")


async def test_what_is_no_request_passes_untouched():
    seen: list[Any] = []

    async def app(scope: Scope, _receive: Receive, _send: Send) -> None:
        seen.append(scope["type"])

    await Answered(app)({"type": "lifespan"}, Client().receive, None)  # type: ignore[arg-type]
    assert seen == ["lifespan"]
