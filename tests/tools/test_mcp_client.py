"""The client of one MCP request: body, reply, and its going away."""

from __future__ import annotations

import asyncio

import anyio
import pytest
from starlette.types import Message

from sessions.errors.protocol import BodyTooLargeError
from sessions.tools.mcp_client import McpClient

GONE: Message = {"type": "http.disconnect"}


class Wire:
    """The server's side; messages are received in the order in which a test puts them."""

    def __init__(self, *messages: Message) -> None:
        self.incoming: asyncio.Queue[Message] = asyncio.Queue()
        self.sent: list[Message] = []
        for message in messages:
            self.incoming.put_nowait(message)

    async def send(self, message: Message) -> None:
        self.sent.append(message)

    @property
    def client(self) -> McpClient:
        return McpClient(self.incoming.get, self.send)


def piece(body: bytes, *, more: bool = False) -> Message:
    return {"type": "http.request", "body": body, "more_body": more}


async def test_a_body_in_pieces_is_handed_on_in_one():
    client = Wire(piece(b"ab", more=True), piece(b"", more=True), piece(b"c")).client
    assert await client.read_body(3)
    assert await client.receive() == {"type": "http.request", "body": b"abc", "more_body": False}


async def test_a_body_over_the_limit_is_refused_and_not_read_on():
    wire = Wire(piece(b"ab", more=True), piece(b"cd", more=True), piece(b"e"))
    with pytest.raises(BodyTooLargeError):
        await wire.client.read_body(3)
    assert wire.incoming.qsize() == 1


async def test_a_client_that_leaves_in_its_body_is_gone():
    assert not await Wire(piece(b"ab", more=True), GONE).client.read_body(9)


async def test_the_scope_is_cancelled_and_receive_hears_of_it_when_the_client_leaves():
    wire = Wire(piece(b"x"))
    client = wire.client
    await client.read_body(9)
    await client.receive()
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(client.watch, tasks.cancel_scope)
        wire.incoming.put_nowait(GONE)
        await anyio.sleep_forever()
    assert await client.receive() == GONE


async def test_nothing_is_cancelled_when_the_client_leaves_with_its_whole_reply():
    wire = Wire(piece(b"x"), GONE)
    client = wire.client
    await client.read_body(9)
    await client.send({"type": "http.response.start", "status": 200, "headers": []})
    await client.send({"type": "http.response.body", "body": b"half", "more_body": True})
    await client.send({"type": "http.response.body", "body": b"x"})
    with anyio.CancelScope() as scope:
        await client.watch(scope)
    assert not scope.cancel_called
    assert len(wire.sent) == 3


async def test_half_a_reply_is_cancelled_when_the_client_leaves():
    client = Wire(piece(b"x"), GONE).client
    await client.read_body(9)
    await client.send({"type": "http.response.body", "body": b"half", "more_body": True})
    with anyio.CancelScope() as scope:
        await client.watch(scope)
    assert scope.cancel_called
