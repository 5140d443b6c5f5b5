"""Long reads through real exchanges: clients that leave, stop reading, or share the loop."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest

from sessions.core.records.record_stream import PIECE_BYTES, RecordStream, pieces_of, pin
from sessions.core.records.turnstile import Turnstile
from sessions.errors.client_visible import InternalError
from sessions.lending.group import Group
from tests.support.apps import pattern_of
from tests.support.parts import FakeBlob
from tests.support.raw import request_bytes
from tests.support.replies import ReplyCutError
from tests.support.stages import Stage, open_stage
from tests.support.waiting import wait_until_async

TEXT = pattern_of("blob", 12 << 20)
GET = request_bytes("GET", "/records")
# What the kernel and the transport may hold for a client that does not read.
_BUFFERED_BYTES = 8 << 20


class Records:
    """An application that sends one blob."""

    def __init__(self) -> None:
        self.blob = FakeBlob(TEXT)
        self.turnstile = Turnstile()

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:  # noqa: ANN401 - ASGI
        """Send the blob, or a byte."""
        if scope["path"] == "/small":
            await send({"type": "http.response.start", "status": 200, "headers": []})
            await send({"type": "http.response.body", "body": b"x"})
            return
        pieces = pieces_of([self.blob], 0, len(TEXT))
        pins = pin([self.blob])
        stream = RecordStream(200, [], pieces, len(TEXT), pins, turnstile=self.turnstile)
        if scope["method"] != "HEAD":
            await stream.begin()
        await stream(scope, receive, send)


@pytest.fixture
def records() -> Records:
    return Records()


@pytest.fixture(params=["lone", "lent"])
async def downloads(
    group: Group, records: Records, request: pytest.FixtureRequest
) -> AsyncIterator[Stage]:
    async with open_stage(group, records, has_router=request.param == "lent") as opened:
        yield opened


@pytest.mark.parametrize("is_at_hand", [True, False])
async def test_a_long_read_comes_whole(downloads: Stage, records: Records, *, is_at_hand: bool):
    records.blob.is_at_hand = is_at_hand
    client = await downloads.connect()
    for _ in range(2):
        reply = await client.ask(GET)
        assert (reply.status, reply.framing) == (200, "length")
        assert reply.body == TEXT
    await wait_until_async(lambda: records.blob.pins == 0, "the blob is free")
    assert not records.blob.was_read_unpinned


async def test_a_client_that_leaves_ends_the_read(downloads: Stage, records: Records):
    client = await downloads.connect(receive_buffer_bytes=4096)
    await client.send(GET)
    await wait_until_async(lambda: records.blob.pins == 1, "the read has begun")
    client.reset()
    await wait_until_async(lambda: records.blob.pins == 0, "the read has ended")
    assert records.blob.read_bytes < len(TEXT)


async def test_a_client_that_does_not_read_holds_the_store_back(downloads: Stage, records: Records):
    client = await downloads.connect(receive_buffer_bytes=4096)
    await client.send(GET)
    await wait_until_async(lambda: records.blob.read_bytes > PIECE_BYTES, "the read goes on")
    other = await downloads.connect()
    for _ in range(50):
        assert (await other.ask(request_bytes("GET", "/small"))).body == b"x"
    assert records.blob.read_bytes < _BUFFERED_BYTES
    assert (await client.read_reply()).body == TEXT


async def test_small_requests_are_served_while_four_read(downloads: Stage, records: Records):
    clients = [await downloads.connect() for _ in range(4)]
    reading = [asyncio.create_task(client.ask(GET)) for client in clients]
    await wait_until_async(lambda: records.blob.pins == 4, "all reads have begun")
    other = await downloads.connect()
    assert (await other.ask(request_bytes("GET", "/small"))).body == b"x"
    assert not any(task.done() for task in reading)
    assert all(reply.body == TEXT for reply in await asyncio.gather(*reading))


async def test_a_store_that_fails_in_the_middle_cuts_the_connection(
    downloads: Stage, records: Records
):
    records.blob = FakeBlob(TEXT, fails_at=len(TEXT) // 2, error=InternalError)
    client = await downloads.connect()
    await client.send(GET)
    with pytest.raises(ReplyCutError) as caught:
        await client.read_reply()
    assert TEXT.startswith(caught.value.body)
    assert 0 < len(caught.value.body) < len(TEXT)
    assert records.blob.pins == 0


async def test_head_reads_nothing(downloads: Stage, records: Records):
    client = await downloads.connect()
    reply = await client.ask(request_bytes("HEAD", "/records"), head_only=True)
    assert reply.header("content-length") == str(len(TEXT))
    assert (records.blob.read_bytes, records.blob.pins) == (0, 0)
    assert (await client.ask(request_bytes("GET", "/small"))).body == b"x"
