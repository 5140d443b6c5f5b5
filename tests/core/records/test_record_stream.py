import asyncio
import gc
from collections.abc import Sequence
from contextlib import ExitStack
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from starlette.types import Message

from sessions.core.records.record_stream import (
    PIECE_BYTES,
    BlobSlice,
    Piece,
    RecordStream,
    pieces_of,
    pin,
)
from sessions.core.records.turnstile import Turnstile
from sessions.errors.engine import EngineUnreachableError
from sessions.replay.splice import Part, size_of
from tests.support.loops import caught_in_callbacks, turn
from tests.support.parts import FakeBlob
from tests.support.waiting import wait_until_async

HEADERS = [(b"content-type", b"application/json")]
LARGE = bytes(range(256)) * (PIECE_BYTES * 4 // 256 - 1)


def stream_of(*parts: Part, turnstile: Turnstile | None = None) -> RecordStream:
    """A stream of all of these parts, their blobs pinned."""
    size = sum(map(size_of, parts))
    pins = pin(part for part in parts if isinstance(part, FakeBlob))
    pieces = pieces_of(parts, 0, size)
    return RecordStream(200, HEADERS, pieces, size, pins, turnstile=turnstile or Turnstile())


class Client:
    """The server's side of a client that may go away."""

    def __init__(self) -> None:
        self.sent: list[Message] = []
        self.gone = asyncio.Event()
        self.room = asyncio.Event()
        self.room.set()
        self.leaves_after_bytes = 1 << 30

    async def send(self, message: Message) -> None:
        """Take a message when there is room."""
        await self.room.wait()
        self.sent.append(message)
        if len(self.body) >= self.leaves_after_bytes:
            self.gone.set()

    async def receive(self) -> Message:
        """Tell when it is gone."""
        await self.gone.wait()
        return {"type": "http.disconnect"}

    async def get(self, stream: RecordStream, method: str = "GET") -> None:
        """Serve the stream."""
        await stream({"type": "http", "method": method}, self.receive, self.send)

    @property
    def body(self) -> bytes:
        """The body so far."""
        return b"".join(bytes(m["body"]) for m in self.sent if m["type"] == "http.response.body")


def read(piece: Piece) -> bytes:
    if isinstance(piece, BlobSlice):
        return bytes(piece.blob.read(piece.start, piece.stop))
    return bytes(piece)


@given(
    st.lists(st.tuples(st.booleans(), st.integers(0, 5)), max_size=8),
    st.integers(0, 40),
    st.integers(0, 40),
)
@settings(derandomize=True, deadline=None)
def test_every_range_of_pieces_is_the_slice_of_the_whole(
    shape: list[tuple[bool, int]], start: int, length: int
):
    letters = iter(range(100))
    texts = [bytes(next(letters) for _ in range(size)) for _, size in shape]
    parts: Sequence[Part] = [
        FakeBlob(text) if is_blob else text for (is_blob, _), text in zip(shape, texts, strict=True)
    ]
    pieces = list(pieces_of(parts, start, start + length))
    assert b"".join(map(read, pieces)) == b"".join(texts)[start : start + length]
    assert all(read(piece) for piece in pieces)


@pytest.mark.parametrize("is_at_hand", [True, False])
async def test_a_text_is_sent_whole_in_small_pieces_of_a_known_length(*, is_at_hand: bool):
    blob, other = FakeBlob(LARGE, is_at_hand=is_at_hand), FakeBlob(b"x", is_at_hand=is_at_hand)
    parts: list[Part] = [b"{", blob, b",", b",", other, LARGE, b"}"]
    whole = b"{" + LARGE + b",,x" + LARGE + b"}"
    stream, client = stream_of(*parts), Client()
    await stream.begin()
    await client.get(stream)
    head, *bodies = client.sent
    assert head["headers"] == [*HEADERS, (b"content-length", b"%d" % len(whole))]
    assert client.body == whole
    assert max(len(body["body"]) for body in bodies) <= PIECE_BYTES
    assert [body["more_body"] for body in bodies] == [True] * (len(bodies) - 1) + [False]
    assert blob.pins == other.pins == 0
    assert not blob.was_read_unpinned
    assert blob.most_bytes <= PIECE_BYTES


async def test_a_reply_reads_no_more_than_a_piece_ahead():
    blob, client = FakeBlob(LARGE), Client()
    stream = stream_of(blob)
    await stream.begin()
    assert blob.read_bytes == 2 * PIECE_BYTES
    await client.get(stream)
    assert client.body == LARGE


async def test_a_first_blob_that_fails_behind_a_text_fails_before_anything_is_sent():
    blob = FakeBlob(LARGE, fails_at=0, error=StoreFailureError)
    with pytest.raises(StoreFailureError):
        await stream_of(b"{", blob).begin()


async def test_small_parts_are_sent_together():
    stream, client = stream_of(*[b"x"] * 1000, FakeBlob(b"y"), b"z"), Client()
    await stream.begin()
    await client.get(stream)
    assert len(client.sent) == 2
    assert client.body == b"x" * 1000 + b"yz"


async def test_head_gets_the_headers_and_nothing_is_read():
    blob, client = FakeBlob(LARGE), Client()
    await client.get(stream_of(blob), "HEAD")
    head, body = client.sent
    assert dict(head["headers"])[b"content-length"] == b"%d" % len(LARGE)
    assert body["body"] == b""
    assert (blob.read_bytes, blob.pins) == (0, 0)


async def test_a_blob_stays_pinned_until_the_last_byte_was_taken():
    blob, client = FakeBlob(LARGE), Client()
    stream = stream_of(blob)
    await stream.begin()
    client.room.clear()
    serving = asyncio.create_task(client.get(stream))
    await asyncio.sleep(0)
    assert blob.pins == 1
    client.room.set()
    await serving
    assert blob.pins == 0


async def test_nothing_more_is_read_for_a_client_that_left():
    blob, client = FakeBlob(LARGE * 10), Client()
    stream = stream_of(blob)
    await stream.begin()
    client.leaves_after_bytes = 1
    await client.get(stream)
    assert blob.read_bytes <= 2 << 20
    assert blob.pins == 0


async def test_replies_beside_each_other_take_turns():
    turnstile = Turnstile()
    streams = [stream_of(FakeBlob(LARGE * 4), turnstile=turnstile) for _ in range(4)]
    clients = [Client() for _ in streams]
    for stream in streams:
        await stream.begin()
    serving = [
        asyncio.create_task(client.get(stream))
        for stream, client in zip(streams, clients, strict=True)
    ]
    await turn(2)  # each sends its first piece at once
    while not all(task.done() for task in serving):
        before = sum(len(client.sent) for client in clients)
        await turn(1)
        assert sum(len(client.sent) for client in clients) - before <= 1
        lengths = [len(client.sent) for client in clients]
        assert max(lengths) - min(lengths) <= 2


async def test_a_cancelled_reply_unpins_at_once():
    blob, client = FakeBlob(LARGE), Client()
    stream = stream_of(blob)
    await stream.begin()
    client.room.clear()
    serving = asyncio.create_task(client.get(stream))
    await asyncio.sleep(0)
    serving.cancel()
    with pytest.raises(asyncio.CancelledError):
        await serving
    assert blob.pins == 0


async def test_a_reply_cancelled_while_a_thread_reads_unpins_when_the_thread_is_done():
    blob, client = FakeBlob(LARGE, is_at_hand=False), Client()
    stream = stream_of(blob)
    await stream.begin()
    blob.gate.clear()
    serving = asyncio.create_task(client.get(stream))
    await wait_until_async(lambda: len(client.sent) > 1, "the first piece is sent")
    await asyncio.sleep(0)
    serving.cancel()
    with pytest.raises(asyncio.CancelledError):
        await serving
    assert blob.pins == 1
    blob.gate.set()
    await wait_until_async(lambda: blob.pins == 0, "the blob is free")
    assert not blob.was_read_unpinned


async def test_a_thread_that_fails_after_the_reply_was_cancelled_troubles_nobody():
    blob = FakeBlob(LARGE, is_at_hand=False, fails_at=2 * PIECE_BYTES)
    client, stream = Client(), stream_of(blob)
    with caught_in_callbacks() as caught:
        await stream.begin()
        blob.gate.clear()
        serving = asyncio.create_task(client.get(stream))
        await wait_until_async(lambda: len(client.sent) > 1, "the first piece is sent")
        await turn()
        serving.cancel()
        with pytest.raises(asyncio.CancelledError):
            await serving
        blob.gate.set()
        await wait_until_async(lambda: blob.pins == 0, "the blob is free")
        del stream, serving
        gc.collect()
        await turn()
    assert caught == []


@pytest.mark.parametrize("is_at_hand", [True, False])
async def test_a_store_that_fails_at_first_fails_before_anything_is_sent(*, is_at_hand: bool):
    blob = FakeBlob(LARGE, is_at_hand=is_at_hand, fails_at=0, error=StoreFailureError)
    other = FakeBlob(LARGE)
    stream = stream_of(blob, other)
    with pytest.raises(StoreFailureError):
        await stream.begin()
    assert blob.pins == other.pins == 0


@pytest.mark.parametrize("is_at_hand", [True, False])
async def test_a_store_that_fails_later_ends_the_reply_early(*, is_at_hand: bool):
    blob = FakeBlob(LARGE, is_at_hand=is_at_hand, fails_at=3 * PIECE_BYTES, error=StoreFailureError)
    client, stream = Client(), stream_of(blob)
    await stream.begin()
    with pytest.raises(StoreFailureError):
        await client.get(stream)
    assert client.body == LARGE[: 2 * PIECE_BYTES]
    assert client.sent[-1]["more_body"] is True
    assert blob.pins == 0


def test_pins_are_counted_and_ended():
    blob = FakeBlob(b"x")
    pins: ExitStack[Any] = pin([blob, blob])
    assert blob.pins == 2
    pins.close()
    assert blob.pins == 0


class StoreFailureError(EngineUnreachableError):
    """Any error that a client may see."""
