"""Files without names, in memory and on disk."""

from __future__ import annotations

import errno
import os
import stat
import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from sessions.replay import session_file
from sessions.replay.session_file import Files, MemoryFiles, SessionFile, SpoolFiles

MAKE: list[Callable[[Path], Files]] = [lambda _: MemoryFiles(), SpoolFiles]


@pytest.fixture(params=MAKE, ids=["memory", "spool"])
def files(request: pytest.FixtureRequest, tmp_path: Path) -> Files:
    made: Files = request.param(tmp_path)
    return made


def stat_of(file: SessionFile) -> os.stat_result:
    return os.fstat(file._fd)


def test_what_is_written_is_read_anywhere(files: Files):
    file = files.open()
    far = 3 * files.region_bytes
    file.reach(far + 5)
    file.write(b"near", 0)
    file.write(memoryview(b"far!!"), far)
    assert (file.read(0, 4), file.read(far + 1, far + 4)) == (b"near", b"ar!")
    assert stat_of(file).st_blocks * 512 < 1 << 20
    file.close()


def test_a_write_is_done_in_pieces(files: Files, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(session_file, "PIECE_BYTES", 3)
    file = files.open()
    file.write(b"0123456789", 0)
    assert file.read(0, 10) == b"0123456789"
    file.close()


def test_reading_behind_the_end_is_an_error_and_no_short_read(files: Files):
    file = files.open()
    file.write(b"1234", 0)
    with pytest.raises(OSError, match="shorter"):
        file.read(2, 6)
    if files.waits:
        assert not file.read_into_nowait(memoryview(bytearray(4)), 2)
    file.close()


def test_a_file_on_disk_has_no_name_and_is_private(tmp_path: Path):
    file = SpoolFiles(tmp_path).open()
    assert list(tmp_path.iterdir()) == []
    assert stat.S_IMODE(stat_of(file).st_mode) == 0o600
    assert stat_of(file).st_nlink == 0
    file.close()


def test_a_file_loses_its_name_where_the_system_makes_none_without(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    true_open = os.open

    def refuse(path: str, flags: int, *args: int, **kwargs: int) -> int:
        if flags & os.O_TMPFILE == os.O_TMPFILE:
            raise OSError(errno.EOPNOTSUPP, "no O_TMPFILE")
        return true_open(path, flags, *args, **kwargs)

    monkeypatch.setattr(os, "open", refuse)
    file = SpoolFiles(tmp_path).open()
    assert list(tmp_path.iterdir()) == []
    file.write(b"kept", 0)
    assert file.read(0, 4) == b"kept"
    file.close()


def test_a_folder_that_is_gone_is_an_error(tmp_path: Path):
    with pytest.raises(FileNotFoundError):
        SpoolFiles(tmp_path / "gone").open()


@pytest.mark.parametrize("number", [errno.EAGAIN, errno.EOPNOTSUPP])
def test_a_read_that_would_wait_for_the_disk_is_not_done(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: int
):
    true_read, calls = os.preadv, []

    def cold(fd: int, buffers: list[memoryview], offset: int, flags: int = 0) -> int:
        calls.append(flags)
        if flags & os.RWF_NOWAIT:
            raise OSError(number, "cold")
        return true_read(fd, buffers, offset, flags)

    monkeypatch.setattr(os, "preadv", cold)
    file = SpoolFiles(tmp_path).open()
    file.write(b"cold", 0)
    into = bytearray(4)
    assert not file.read_into_nowait(memoryview(into), 0)
    assert not file.read_into_nowait(memoryview(into), 0)
    asked = len(calls)
    assert asked == (1 if number == errno.EOPNOTSUPP else 2), "asked again only if it may help"
    file.read_into(memoryview(into), 0)
    assert into == b"cold"
    file.close()


def test_a_freed_end_shortens_the_file_and_a_freed_middle_does_not(files: Files):
    file = files.open()
    file.reach(1 << 20)
    file.write(b"x" * (1 << 20), 0)
    file.free(0, 1 << 19)
    assert stat_of(file).st_size == 1 << 20
    assert stat_of(file).st_blocks * 512 == 1 << 19
    file.free(1 << 19, 1 << 20)
    assert stat_of(file).st_size == 1 << 19
    assert stat_of(file).st_blocks == 0
    file.close()


def test_a_large_file_is_closed_by_a_thread(files: Files):
    file = files.open()
    file.reach(session_file.LARGE_BYTES)
    before = set(threading.enumerate())
    closed = threading.Event()
    true_close = os.close

    def close(fd: int) -> None:
        true_close(fd)
        assert threading.current_thread() not in before
        closed.set()

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(os, "close", close)
        file.close()
        assert closed.wait(10)


def test_a_large_file_is_closed_at_once_when_no_thread_is_left(
    files: Files, monkeypatch: pytest.MonkeyPatch
):
    file = files.open()
    file.reach(session_file.LARGE_BYTES)

    def start(_: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(threading.Thread, "start", start)
    file.close()
    with pytest.raises(OSError, match="Bad file descriptor"):
        stat_of(file)
