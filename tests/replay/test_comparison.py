"""What is shared: siblings, turns tried again, long chains, cold and broken disks."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sessions.errors.group import ReplayStoreError
from sessions.replay import comparison, session_blobs
from sessions.replay.comparison import common_bytes
from sessions.replay.file_store import FileReplayStore, open_replay_store
from sessions.replay.session_file import SpoolFiles
from tests.support.replay_feeding import feed, put, read_all
from tests.support.replay_files import FaultyFiles

TRUNK = b"trunk" * 20_000


@pytest.fixture
def store() -> Iterator[FileReplayStore]:
    opened = open_replay_store("")
    yield opened
    opened.close()


@settings(derandomize=True, deadline=None)
@given(st.binary(max_size=9), st.binary(max_size=300), st.binary(max_size=300), st.integers(0, 300))
def test_common_bytes_are_those_up_to_the_first_difference(
    before: bytes, one: bytes, two: bytes, keep: int
):
    two = one[:keep] + two
    view = memoryview(two)[: len(one)]
    expected = next((i for i, (a, b) in enumerate(zip(one, two, strict=False)) if a != b), None)
    found = common_bytes(before + one, len(before), view)
    assert found == (len(view) if expected is None else expected)


async def test_a_branch_shares_with_the_sibling_that_it_goes_on_from(store: FileReplayStore):
    await put(store, TRUNK)
    await put(store, TRUNK + b"left" * 20_000)
    await put(store, TRUNK + b"right" * 20_000)
    before = store.stored_bytes
    child = await put(store, TRUNK + b"left" * 20_000 + b"more" * 1000)
    assert store.stored_bytes - before <= 4000 + 16
    assert read_all(child) == TRUNK + b"left" * 20_000 + b"more" * 1000


async def test_a_branch_shares_with_its_parent_however_many_others_came_since(
    store: FileReplayStore,
):
    parent = await put(store, TRUNK)
    for number in range(2 * session_blobs.CANDIDATES):
        await put(store, b"%04d" % number * 1000)
    for after, is_shared in ((None, False), (parent, True)):
        before = store.stored_bytes
        writer = store.begin("s", "f", after)
        text = TRUNK + b"more" * 1000
        assert await feed(writer, text) == (len(TRUNK) - 4 if is_shared else 0)
        child = await writer.finish()
        assert read_all(child) == text
        assert store.stored_bytes - before <= (4016 if is_shared else len(text) + 16)
        store.discard("s", [child])


async def test_a_blob_that_its_parent_does_not_begin_is_compared_with_the_others(
    store: FileReplayStore,
):
    parent = await put(store, b"other" * 20_000)
    await put(store, TRUNK)
    writer = store.begin("s", "f", parent)
    assert await feed(writer, TRUNK + b"more" * 1000) == len(TRUNK) - 4
    writer.abort()


async def test_a_parent_that_was_discarded_meanwhile_or_is_another_sessions_is_not_looked_at(
    store: FileReplayStore,
):
    gone = await put(store, TRUNK)
    gone.pin()
    store.discard("s", [gone])
    writer = store.begin("s", "f", gone)
    assert await feed(writer, TRUNK) == 0
    writer.abort()
    gone.unpin()
    elsewhere = await put(store, TRUNK, session="t")
    writer = store.begin("s", "f", elsewhere)
    assert await feed(writer, TRUNK) == 0
    writer.abort()


async def test_a_turn_that_is_sampled_again_with_the_same_text_stores_nothing(
    store: FileReplayStore,
):
    for text in (TRUNK, TRUNK + b"one" * 9000, TRUNK + b"two" * 9000):
        await put(store, text)
    before = store.stored_bytes
    again = await put(store, TRUNK + b"one" * 9000)
    assert store.stored_bytes - before <= 8
    assert read_all(again) == TRUNK + b"one" * 9000


async def test_a_blob_with_which_nothing_is_shared_is_not_kept_for_it(store: FileReplayStore):
    other = await put(store, b"other" * 1000)
    writer = store.begin("s", "f")
    await feed(writer, b"mine" * 1000)
    store.discard("s", [other])
    assert store.stored_bytes == 4000
    await put(store, b"third" * 1000)
    store.drop_session("s")
    assert store.stored_bytes == 4000, "what is still written"
    writer.abort()
    assert store.stored_bytes == 0


async def test_a_few_equal_bytes_are_no_reason_to_take_another_blob(store: FileReplayStore):
    await put(store, b"common" * 50 + b"a" * 5000)
    await put(store, b"common" * 50 + b"z" * 5000)
    writer = store.begin("s", "f")
    text = b"common" * 50 + b"aa" + b"c" * 5000
    assert await feed(writer, text) == 300
    assert read_all(await writer.finish()) == text


async def test_only_so_many_blobs_are_looked_at(
    store: FileReplayStore, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(session_blobs, "CANDIDATES", 3)
    wanted = await put(store, b"wanted" * 500)
    for number in range(3):
        await put(store, b"%d" % number * 3000)
    writer = store.begin("s", "f")
    assert await feed(writer, read_all(wanted)) == 0
    writer.abort()
    await put(store, b"wanted" * 400)
    writer = store.begin("s", "f")
    assert await feed(writer, read_all(wanted)) > 2000
    writer.abort()


async def test_a_long_chain_is_shared_by_half_and_the_rest_is_stored_in_one_piece(
    store: FileReplayStore, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(comparison, "CHAIN_LIMIT", 8)
    text, longest, after_longest = b"", 0, 99
    for turn in range(40):
        # Two writers at once: the second of each pair finds the place behind the trunk taken.
        first, second = store.begin("s", "f"), store.begin("s", "f")
        await feed(first, text + b"other%d" % turn * 100)
        text += b"turn%d" % turn * 100
        await feed(second, text)
        kept = await second.finish()
        first.abort()
        if len(kept.text.extents) < longest:
            after_longest = min(after_longest, len(kept.text.extents))
        longest = max(longest, len(kept.text.extents))
        assert read_all(kept) == text
    assert longest == 8
    assert after_longest == 5


async def test_what_is_compared_on_a_cold_disk_is_read_ahead_by_a_thread(tmp_path: Path):
    files = FaultyFiles(SpoolFiles(tmp_path))
    store = FileReplayStore(files)
    await put(store, TRUNK * 30)
    files.coldness = 1.0
    writer = store.begin("s", "f")
    assert writer.feed_nowait(memoryview(TRUNK)) == (0, 0)
    await writer.wait_ready()
    assert writer.feed_nowait(memoryview(TRUNK)) == (len(TRUNK), len(TRUNK))
    assert await feed(writer, TRUNK * 30) > len(TRUNK) * 29 - 10
    assert read_all(await writer.finish()) == TRUNK * 31
    store.close()


async def test_a_disk_that_cannot_be_read_fails_the_turn_and_not_the_session(tmp_path: Path):
    files = FaultyFiles(SpoolFiles(tmp_path))
    store = FileReplayStore(files)
    await put(store, TRUNK)
    files.coldness, files.is_broken = 1.0, True
    writer = store.begin("s", "f")
    assert writer.feed_nowait(memoryview(TRUNK)) == (0, 0)
    with pytest.raises(ReplayStoreError):
        await writer.wait_ready()
    writer.abort()
    files.is_broken = False
    assert read_all(await put(store, TRUNK)) == TRUNK
    store.close()


async def test_a_writer_aborted_while_its_base_is_read_ahead_leaves_the_store_whole(
    tmp_path: Path,
):
    files = FaultyFiles(SpoolFiles(tmp_path), region_bytes=0)
    store = FileReplayStore(files)
    await put(store, TRUNK)
    files.coldness = 1.0
    writer = store.begin("s", "f")
    writer.feed_nowait(memoryview(TRUNK))
    writer.abort()
    writer._comparison.read_ahead()
    store.drop_session("s")
    assert store.stored_bytes == 0
    store.close()
