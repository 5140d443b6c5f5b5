"""Windows onto files in memory: what is seen there, and that nobody looks behind the end."""

from __future__ import annotations

import mmap
import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from sessions.replay import mapping
from sessions.replay.file_store import open_replay_store
from sessions.replay.mapping import FileMapping
from sessions.replay.session_file import MemoryFiles, SessionFile, SpoolFiles
from tests.support.replay_feeding import put, read_all

WINDOW = 4 * mmap.PAGESIZE


@pytest.fixture(autouse=True)
def small_windows(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(mapping, "WINDOW_BYTES", WINDOW)


@pytest.fixture
def descriptor() -> Iterator[int]:
    made = os.memfd_create("test")
    yield made
    os.close(made)


def size_of(file: SessionFile) -> int:
    return os.fstat(file._fd).st_size


def filled(size_bytes: int) -> SessionFile:
    file = MemoryFiles().open()
    file.reach(size_bytes)
    file.write(b"x" * size_bytes, 0)
    return file


def viewed(file: SessionFile, start: int, stop: int) -> bytes:
    view = file.view_nowait(start, stop)
    assert view is not None
    return bytes(view)


def test_a_view_shows_what_is_written_before_and_after_it_was_mapped(descriptor: int):
    windows = FileMapping(descriptor)
    os.pwrite(descriptor, b"early", 0)
    first = windows.view(1, 4)
    assert first is not None
    assert bytes(first) == b"arl"
    os.pwrite(descriptor, b"later", 3 * WINDOW + 7)
    last = windows.view(3 * WINDOW + 7, 3 * WINDOW + 12)
    assert last is not None
    assert bytes(last) == b"later"
    assert len(windows._windows) == 2
    del first, last
    windows.close()


def test_a_view_ends_with_its_window(descriptor: int):
    windows = FileMapping(descriptor)
    found = windows.view(WINDOW - 3, WINDOW + 5)
    assert found is not None
    assert len(found) == 3
    del found
    windows.close()


def test_a_view_cannot_be_written_to(descriptor: int):
    windows = FileMapping(descriptor)
    found = windows.view(0, 4)
    assert found is not None
    assert found.readonly
    del found
    windows.close()


def test_a_mapped_file_is_as_long_as_its_windows_whatever_is_freed():
    file = filled(3 * mmap.PAGESIZE)
    assert viewed(file, 0, 3) == b"xxx"
    assert size_of(file) == WINDOW
    file.free(mmap.PAGESIZE + 1, 3 * mmap.PAGESIZE)
    assert size_of(file) == WINDOW, "else looking there kills the process"
    assert os.fstat(file._fd).st_blocks * 512 == 2 * mmap.PAGESIZE
    assert viewed(file, mmap.PAGESIZE, WINDOW) == b"x" + bytes(3 * mmap.PAGESIZE - 1)
    file.free(0, mmap.PAGESIZE + 1)
    assert os.fstat(file._fd).st_blocks == 0
    file.close()


def test_a_file_that_grew_past_its_windows_is_cut_back_to_them():
    file = filled(WINDOW)
    assert viewed(file, 0, 1) == b"x"
    file.reach(3 * WINDOW)
    file.write(b"y" * 2 * WINDOW, WINDOW)
    file.free(WINDOW, 3 * WINDOW)
    assert size_of(file) == WINDOW
    assert viewed(file, 0, WINDOW) == b"x" * WINDOW
    file.close()


@pytest.mark.parametrize("broken", ["ftruncate", "mmap"])
def test_a_file_that_cannot_be_mapped_is_read_instead(
    monkeypatch: pytest.MonkeyPatch, descriptor: int, broken: str
):
    asked: list[object] = []

    def refuse(*args: object, **_: object) -> None:
        asked.append(args)
        raise OSError(12, "no room")

    owner = os if broken == "ftruncate" else mmap
    monkeypatch.setattr(owner, broken, refuse)
    windows = FileMapping(descriptor)
    assert windows.view(0, 1) is windows.view(0, 1) is None
    assert len(asked) == 1
    assert windows.floor_bytes == 0


def test_a_file_on_a_disk_is_not_mapped(tmp_path: Path):
    file = SpoolFiles(tmp_path).open()
    file.write(b"1234", 0)
    assert file.view_nowait(0, 4) is None
    file.close()


def test_a_mapped_file_is_given_back_as_a_whole():
    before = set(os.listdir("/proc/self/fd"))
    file = filled(8)
    assert viewed(file, 0, 8) == b"x" * 8
    assert os.fstat(file._fd).st_ino in inodes_mapped()
    inode = os.fstat(file._fd).st_ino
    file.close()
    assert inode not in inodes_mapped()
    assert set(os.listdir("/proc/self/fd")) == before


def test_a_closed_file_is_not_looked_at():
    file = filled(8)
    assert viewed(file, 0, 8) == b"x" * 8
    file.close()
    assert file.view_nowait(0, 8) is None, "its pages are gone: looking there kills the process"


def test_a_file_is_empty_before_it_is_unmapped(monkeypatch: pytest.MonkeyPatch):
    file = filled(8)
    assert viewed(file, 0, 8) == b"x" * 8
    sizes: list[int] = []
    true_close = FileMapping.close

    def close(self: FileMapping) -> None:
        sizes.append(size_of(file))
        true_close(self)

    monkeypatch.setattr(FileMapping, "close", close)
    file.close()
    assert sizes == [0]


def test_a_view_that_is_still_held_keeps_its_window_and_nothing_breaks(descriptor: int):
    windows = FileMapping(descriptor)
    os.pwrite(descriptor, b"held", 0)
    held = windows.view(0, 4)
    assert held is not None
    windows.close()
    assert bytes(held) == b"held"


async def test_blobs_share_and_are_read_back_across_windows():
    store = open_replay_store("")
    text = bytes(range(32, 120)) * 2000
    for size in (WINDOW // 2, WINDOW + 1, 2 * WINDOW + 5, len(text)):
        blob = await put(store, text[:size], piece=WINDOW // 3)
        assert read_all(blob) == text[:size]
    assert store.stored_bytes <= len(text) + 16
    branched = text[: WINDOW + 77] + b"#" * WINDOW
    blob = await put(store, branched)
    assert read_all(blob) == branched
    store.close()


def inodes_mapped() -> set[int]:
    with open("/proc/self/maps", encoding="utf-8") as lines:
        return {int(line.split()[4]) for line in lines}
