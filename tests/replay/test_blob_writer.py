"""Writers: what a growing session costs, and what a writer's life may be."""

from __future__ import annotations

import base64
import io
import random
from collections.abc import Callable

import numpy
import pytest

from sessions.errors.unseen import LocalProtocolError
from sessions.replay.file_store import open_replay_store
from tests.support.replay_feeding import feed, put, read_all

TURNS = 50


def raw_blob(rows: bytes, row_bytes: int) -> bytes:
    assert len(rows) % row_bytes == 0
    return base64.b64encode(rows)


def npy_blob(rows: bytes, row_bytes: int) -> bytes:
    out = io.BytesIO()
    numpy.save(out, numpy.frombuffer(rows, "uint8").reshape(-1, row_bytes))
    return base64.b64encode(out.getvalue())


@pytest.mark.parametrize("encode", [raw_blob, npy_blob])
@pytest.mark.parametrize("row_bytes", [4, 8, 20, 1000, 3008])
async def test_a_session_that_grows_is_stored_once_and_in_one_piece(
    encode: Callable[[bytes, int], bytes], row_bytes: int
):
    store, made = open_replay_store(""), random.Random(row_bytes)
    rows, blobs = b"", []
    for _ in range(TURNS):
        rows += made.randbytes(row_bytes * made.randrange(1, 40))
        text = encode(rows, row_bytes)
        blobs.append((await put(store, text, piece=made.choice([999, 5000, 65536])), text))
    assert max(len(blob.text.extents) for blob, _ in blobs) == 1
    inline = sum(blob.text.inline_bytes for blob, _ in blobs)
    assert store.stored_bytes <= len(blobs[-1][1]) + inline
    assert inline <= TURNS * (4 + 172)
    for blob, text in blobs:
        assert read_all(blob) == text
    store.close()


async def test_a_turn_that_is_rolled_back_and_sampled_anew_goes_on_at_the_same_place():
    store = open_replay_store("")
    first = await put(store, b"a" * 10_000)
    second = await put(store, b"a" * 10_000 + b"b" * 500)
    store.discard("s", [second])
    again = await put(store, b"a" * 10_000 + b"c" * 900)
    assert len(again.text.extents) == len(first.text.extents) == 1
    assert store.stored_bytes <= 10_900 + 16
    store.close()


async def test_an_npy_blob_fed_in_any_pieces_keeps_its_head_apart():
    text = npy_blob(bytes(4000), 4)
    for piece in (1, 3, 8, 15, 16, 17, 171, 172, 173, 4000):
        store = open_replay_store("")
        blob = await put(store, text, piece=piece)
        assert blob.text.inline_head == text[:172]
        assert read_all(blob) == text
        store.close()


@pytest.mark.parametrize("text", [b"k05V", b"k05VTVBZAQB2", b"k05Vx" * 9, b"k05VTVBZ****" * 3])
@pytest.mark.parametrize("piece", [1, 5, 100])
async def test_a_text_that_only_begins_like_an_npy_blob_is_kept_as_it_is(text: bytes, piece: int):
    store = open_replay_store("")
    for _ in range(2):
        assert read_all(await put(store, text, piece=piece)) == text
    store.close()


async def test_a_head_that_differs_is_never_reported_as_shared():
    store = open_replay_store("")
    await put(store, npy_blob(bytes(4000), 4))
    text = npy_blob(bytes(4400), 4)
    writer = store.begin("s", "f")
    assert writer.feed_nowait(memoryview(text)) == (len(text), 0)
    assert writer.new_bytes < 1000, "the rows are shared nevertheless"
    assert read_all(await writer.finish()) == text
    store.close()


@pytest.mark.parametrize("end", ["finish", "abort"])
async def test_a_writer_that_ended_takes_nothing(end: str):
    store = open_replay_store("")
    writer = store.begin("s", "f")
    writer.feed_nowait(memoryview(b"x"))
    if end == "finish":
        await writer.finish()
    else:
        writer.abort()
    with pytest.raises(LocalProtocolError):
        writer.feed_nowait(memoryview(b"x"))
    with pytest.raises(LocalProtocolError):
        await writer.finish()
    store.close()


@pytest.mark.parametrize("size", [0, 5, 300_000])
async def test_a_writer_may_be_aborted_after_any_step(size: int):
    store = open_replay_store("")
    await put(store, b"x" * 100_000)
    writer = store.begin("s", "f")
    await feed(writer, b"x" * size)
    writer.abort()
    assert store.stored_bytes == 100_000
    assert store.usage().unfinished_bytes == 0
    store.drop_session("s")
    assert store.usage().sessions == 0
    store.close()


async def test_a_session_that_was_only_tried_leaves_nothing():
    store = open_replay_store("")
    writer = store.begin("s", "f")
    await feed(writer, b"x" * 1000)
    assert store.usage().files == 1
    writer.abort()
    usage = store.usage()
    assert (usage.sessions, usage.files, usage.stored_bytes) == (0, 0, 0)
    store.close()
