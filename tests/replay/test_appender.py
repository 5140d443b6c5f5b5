"""New bytes on their way to the file: at once, or through the queue of a disk."""

from __future__ import annotations

import asyncio
import os
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from sessions.errors.group import ReplayStoreError
from sessions.replay.appender import QUEUE_BYTES, Appender, QueuedAppender
from sessions.replay.file_store import THREADS, FileReplayStore
from sessions.replay.session_file import MemoryFiles, SessionFile, SpoolFiles
from sessions.replay.session_space import SessionSpace, Tally
from tests.support.replay_feeding import feed, put, read_all
from tests.support.replay_files import FaultyFiles
from tests.support.waiting import wait_until

MIB = 1 << 20


class HeldWrites:
    """Lets writes of session files wait until they are let go."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.gate = threading.Event()
        self.begun = threading.Event()
        self.count = 0
        true_write = SessionFile.write

        def write(file: SessionFile, data: bytes | memoryview, offset: int) -> None:
            self.count += 1
            self.begun.set()
            assert self.gate.wait(20)
            true_write(file, data, offset)

        monkeypatch.setattr(SessionFile, "write", write)


def test_bytes_go_where_they_are_wanted_if_the_place_is_free():
    space = SessionSpace(MemoryFiles(), Tally())
    first = Appender(space)
    assert first.append_nowait(memoryview(b"1234"), None) == 4
    space.keep(first.extents, first.regions)
    second, third = Appender(space), Appender(space)
    second.append_nowait(memoryview(b"56"), 4)
    third.append_nowait(memoryview(b"78"), 4)
    assert second.extents == [(4, 6)]
    assert third.extents[0].start >= MIB
    space.close()


def test_a_full_region_is_followed_by_another():
    files = FaultyFiles(MemoryFiles(), region_bytes=10)
    space = SessionSpace(files, Tally())
    other = Appender(space)
    appender = Appender(space)
    appender.append_nowait(memoryview(b"x" * 8), None)
    other.append_nowait(memoryview(b"y"), None)
    assert appender.append_nowait(memoryview(b"z" * 6), None) == 6
    assert appender.extents == [(0, 10), (20, 24)]
    assert appender.size_bytes == 14
    space.close()


async def test_a_disk_that_is_slow_takes_as_much_as_the_queue_holds(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    held = HeldWrites(monkeypatch)
    with ThreadPoolExecutor(1) as threads:
        space = SessionSpace(SpoolFiles(tmp_path), Tally())
        appender = QueuedAppender(space, threads)
        text = os.urandom(QUEUE_BYTES + MIB)
        assert appender.append_nowait(memoryview(text), None) == QUEUE_BYTES
        assert appender.append_nowait(memoryview(text)[QUEUE_BYTES:], None) == 0
        waiting = asyncio.create_task(appender.wait_room())
        await asyncio.sleep(0)
        assert not waiting.done()
        held.gate.set()
        await waiting
        rest = memoryview(text)[QUEUE_BYTES:]
        while rest:
            await appender.wait_room()
            rest = rest[appender.append_nowait(rest, None) :]
        await appender.flush()
        assert not appender.is_busy
        assert space.file is not None
        assert space.file.read(0, len(text)) == text
        space.close()


async def test_what_is_aborted_while_a_thread_writes_is_freed_behind_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    store = FileReplayStore(SpoolFiles(tmp_path))
    kept = await put(store, b"kept" * 1000)
    held = HeldWrites(monkeypatch)
    writer = store.begin("s", "f")
    writer.feed_nowait(memoryview(b"kept" * 1000 + b"x" * 3 * MIB))
    assert held.begun.wait(10)
    writer.abort()
    assert store.stored_bytes > 4000
    store.drop_session("other")
    held.gate.set()
    wait_until(lambda: store.stored_bytes == 4000, "the bytes are freed")
    assert held.count <= THREADS, "what no thread had begun is not written"
    assert read_all(kept) == b"kept" * 1000
    store.close()


async def test_a_session_dropped_while_a_thread_writes_keeps_its_file_until_that_is_done(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    store = FileReplayStore(SpoolFiles(tmp_path))
    held = HeldWrites(monkeypatch)
    writer = store.begin("s", "f")
    writer.feed_nowait(memoryview(b"x" * MIB))
    assert held.begun.wait(10)
    store.drop_session("s")
    writer.abort()
    assert store.usage().files == 1, "a write to a closed descriptor may hit another file"
    held.gate.set()
    wait_until(lambda: store.usage().files == 0, "the file is closed")
    store.close()


@pytest.mark.parametrize("on_disk", [False, True])
async def test_a_full_disk_fails_the_turn_and_keeps_nothing_of_it(tmp_path: Path, *, on_disk: bool):
    files = FaultyFiles(SpoolFiles(tmp_path) if on_disk else MemoryFiles())
    store = FileReplayStore(files)
    first = await put(store, b"first" * 1000)
    files.room_bytes = MIB
    writer = store.begin("s", "f")

    async def write_all() -> None:
        await feed(writer, b"first" * 1000 + os.urandom(3 * MIB))
        await writer.finish()

    with pytest.raises(ReplayStoreError, match="No space left"):
        await write_all()
    writer.abort()
    wait_until(lambda: store.stored_bytes == 5000, "what was written is freed")
    files.room_bytes = None
    again = await put(store, b"first" * 2000)
    assert (read_all(first), read_all(again)) == (b"first" * 1000, b"first" * 2000)
    store.close()


async def test_a_disk_that_is_full_at_the_last_byte_fails_the_finish(tmp_path: Path):
    files = FaultyFiles(SpoolFiles(tmp_path))
    files.room_bytes = 10
    store = FileReplayStore(files)
    writer = store.begin("s", "f")
    assert writer.feed_nowait(memoryview(b"x" * 11)) == (11, 0)
    with pytest.raises(ReplayStoreError):
        await writer.finish()
    writer.abort()
    usage = store.usage()
    assert (usage.stored_bytes, usage.files, usage.sessions) == (0, 0, 0)
    store.close()


async def test_no_descriptor_left_is_a_failed_turn_and_not_an_exception(
    monkeypatch: pytest.MonkeyPatch,
):
    files = MemoryFiles()

    def refuse() -> SessionFile:
        raise OSError(24, "Too many open files")

    monkeypatch.setattr(files, "open", refuse)
    store = FileReplayStore(files)
    writer = store.begin("s", "f")
    assert writer.feed_nowait(memoryview(b"x" * 100)) == (0, 0)
    with pytest.raises(ReplayStoreError, match="Too many open files"):
        await writer.wait_ready()
    writer.abort()
    assert store.usage().sessions == 0
    store.close()
