"""What every `ReplayStore` does: one suite, in memory and on disk."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from sessions.replay.file_store import FileReplayStore, open_replay_store
from tests.support.replay_feeding import feed, put, read_all
from tests.support.waiting import wait_until

LONG = bytes(range(256)) * 4096  # 1 MiB
PIECE = 100_003


@pytest.fixture(params=["memory", "spool"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[FileReplayStore]:
    opened = open_replay_store(str(tmp_path) if request.param == "spool" else "")
    yield opened
    opened.close()


@pytest.mark.parametrize("size", [0, 1, 3, 4, 5, 8, 16, 255, 256, 257, PIECE, len(LONG)])
async def test_a_blob_is_read_as_it_was_fed(store: FileReplayStore, size: int):
    text = LONG[:size]
    blob = await put(store, text)
    assert (blob.size_bytes, blob.head, blob.tail) == (size, text[:256], text[-4:])
    assert read_all(blob) == text
    assert store.stored_bytes == size


async def test_any_range_is_read_with_and_without_waiting(store: FileReplayStore):
    blob = await put(store, LONG)
    for start, stop in [(0, 0), (0, 1), (7, 4099), (len(LONG) - 5, len(LONG)), (0, len(LONG))]:
        assert blob.read(start, stop) == LONG[start:stop]
        assert blob.read_nowait(start, stop) in (LONG[start:stop], None)


async def test_a_blob_that_goes_on_from_another_stores_only_the_rest(store: FileReplayStore):
    await put(store, LONG[:500_000])
    writer = store.begin("s", "f")
    shared = await feed(writer, LONG)
    assert 499_990 <= shared <= 500_000
    assert writer.new_bytes == len(LONG) - shared
    assert read_all(await writer.finish()) == LONG
    assert store.stored_bytes <= len(LONG) + 16


@pytest.mark.parametrize(("session", "field"), [("other", "f"), ("s", "other")])
async def test_sessions_and_fields_share_nothing(store: FileReplayStore, session: str, field: str):
    await put(store, LONG)
    writer = store.begin(session, field)
    assert await feed(writer, LONG) == 0
    writer.abort()


async def test_nothing_is_shared_with_a_blob_that_must_not_be(store: FileReplayStore):
    writer = store.begin("s", "f")
    await feed(writer, LONG)
    bad = await writer.finish(is_shared=False)
    assert read_all(bad) == LONG
    writer = store.begin("s", "f")
    assert await feed(writer, LONG) == 0
    writer.abort()
    store.discard("s", [bad])
    assert store.stored_bytes == 0


async def test_an_aborted_blob_leaves_nothing(store: FileReplayStore):
    writer = store.begin("s", "f")
    await feed(writer, LONG[:PIECE])
    assert store.stored_bytes == PIECE
    writer.abort()
    writer.abort()
    wait_until(lambda: not store.stored_bytes, "what a thread wrote just then is freed")
    assert read_all(await put(store, LONG)) == LONG


async def test_abort_after_finish_does_nothing(store: FileReplayStore):
    writer = store.begin("s", "f")
    await feed(writer, LONG)
    blob = await writer.finish()
    writer.abort()
    assert read_all(blob) == LONG


async def test_a_discarded_blob_takes_with_it_only_what_nobody_shares(store: FileReplayStore):
    first = await put(store, LONG[:600_000])
    second = await put(store, LONG)
    store.discard("s", [second])
    assert store.stored_bytes <= 600_000 + 16
    assert read_all(first) == LONG[:600_000]
    store.discard("s", [first, second])
    assert store.stored_bytes == 0


async def test_unknown_blobs_and_sessions_are_ignored(store: FileReplayStore):
    blob = await put(store, LONG)
    store.discard("other", [blob])
    store.drop_session("other")
    assert read_all(blob) == LONG


async def test_a_pinned_blob_stays_until_it_is_unpinned_as_often(store: FileReplayStore):
    blob, other = await put(store, LONG), await put(store, LONG[::-1], session="t")
    blob.pin()
    blob.pin()
    other.pin()
    store.discard("s", [blob])
    store.drop_session("t")
    blob.unpin()
    assert (read_all(blob), read_all(other)) == (LONG, LONG[::-1])
    blob.unpin()
    other.unpin()
    assert store.stored_bytes == 0


async def test_a_dropped_session_is_forgotten_and_may_come_again(store: FileReplayStore):
    await put(store, LONG)
    store.drop_session("s")
    assert store.stored_bytes == 0
    writer = store.begin("s", "f")
    assert await feed(writer, LONG) == 0
    assert read_all(await writer.finish()) == LONG


async def test_a_blob_that_is_written_while_its_session_is_dropped_can_be_finished(
    store: FileReplayStore,
):
    await put(store, LONG[:500_000])
    writer = store.begin("s", "f")
    await feed(writer, LONG[:800_000])
    store.drop_session("s")
    await feed(writer, LONG[800_000:])
    blob = await writer.finish()
    assert read_all(blob) == LONG
    store.discard("s", [blob])
    assert store.stored_bytes == 0


async def test_the_blob_that_is_compared_with_may_be_discarded_meanwhile(store: FileReplayStore):
    base = await put(store, LONG[:800_000])
    writer = store.begin("s", "f")
    await feed(writer, LONG[:300_000])
    store.discard("s", [base])
    await feed(writer, LONG[300_000:])
    assert read_all(await writer.finish()) == LONG
    assert store.stored_bytes <= len(LONG) + 16


async def test_overlapping_blobs_of_one_session_do_not_touch_each_other(store: FileReplayStore):
    await put(store, LONG[:1000])
    texts = [LONG[:1000] + bytes([number]) * 300_000 for number in range(4)]
    writers = [store.begin("s", "f") for _ in texts]
    for at in range(0, len(texts[0]), PIECE):
        for writer, text in zip(writers, texts, strict=True):
            await feed(writer, text[at : at + PIECE])
    blobs = [await writer.finish() for writer in writers]
    assert [read_all(blob) for blob in blobs] == texts
