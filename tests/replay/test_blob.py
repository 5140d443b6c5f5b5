"""A stored blob: its ranges, its pins, its end."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from sessions.errors.group import ReplayStoreError
from sessions.errors.unseen import LocalProtocolError
from sessions.replay.blob import READ_LIMIT_BYTES, BlobText, StoredBlob
from sessions.replay.extents import Extent
from sessions.replay.session_file import MemoryFiles, SpoolFiles
from tests.support.replay_files import FaultyFile, FaultyFiles

TEXT = b"HEADbody-one,body-twoTAIL"


@pytest.fixture(params=["memory", "spool"])
def files(request: pytest.FixtureRequest, tmp_path: Path) -> FaultyFiles:
    return FaultyFiles(MemoryFiles() if request.param == "memory" else SpoolFiles(tmp_path))


@pytest.fixture
def loose() -> list[StoredBlob]:
    return []


@pytest.fixture
def blob(files: FaultyFiles, loose: list[StoredBlob]) -> Iterator[StoredBlob]:
    file = files.open()
    file.write(b"body-two", 5)
    file.write(b"body-one,", 100)
    text = BlobText(
        size_bytes=len(TEXT),
        first=TEXT,
        last=b"TAIL",
        inline_head=b"HEAD",
        extents=[Extent(100, 109), Extent(5, 13)],
        inline_tail=b"TAIL",
    )
    yield StoredBlob(text, file, loose.append)
    assert isinstance(file, FaultyFile)
    file.close()


def test_every_range_is_read_from_where_it_lies(blob: StoredBlob):
    for start in range(len(TEXT) + 1):
        for stop in range(start, len(TEXT) + 1):
            assert blob.read(start, stop) == TEXT[start:stop]
            assert blob.read_nowait(start, stop) == TEXT[start:stop]


def test_a_cold_range_is_not_read_without_waiting(blob: StoredBlob, tmp_path: Path):
    files = FaultyFiles(SpoolFiles(tmp_path))
    file = files.open()
    file.write(b"body", 0)
    files.coldness = 1.0
    text = BlobText(
        size_bytes=4, first=b"body", last=b"body", inline_head=b"",
        extents=[Extent(0, 2), Extent(2, 4)], inline_tail=b"",
    )  # fmt: skip
    cold = StoredBlob(text, file, lambda _: None)
    assert (cold.read_nowait(0, 1), cold.read_nowait(0, 4)) == (None, None)
    assert cold.read(0, 4) == b"body"
    file.close()


@pytest.mark.parametrize(
    ("start", "stop"), [(-1, 3), (3, 2), (0, len(TEXT) + 1), (0, READ_LIMIT_BYTES + 1)]
)
def test_a_range_that_is_none_is_refused(blob: StoredBlob, start: int, stop: int):
    with pytest.raises(LocalProtocolError):
        blob.read(start, stop)


@pytest.mark.parametrize("stop", [6, len(TEXT)])
def test_a_broken_disk_is_told_as_such(blob: StoredBlob, files: FaultyFiles, stop: int):
    files.is_broken = True
    with pytest.raises(ReplayStoreError):
        blob.read(4, stop)


def test_a_peek_goes_up_to_the_end_of_an_extent(blob: StoredBlob):
    into = bytearray(20)
    assert blob.peek_nowait(2, memoryview(into)) == 7
    assert into[:7] == b"dy-one,"
    assert blob.peek(9, memoryview(into)) == 8
    assert into[:8] == b"body-two"
    assert blob.peek(17, memoryview(into)) == blob.peek_nowait(17, memoryview(into)) == 0
    assert blob.body_bytes == 17


def test_bytes_are_freed_once_when_discarded_and_no_longer_pinned(
    blob: StoredBlob, loose: list[StoredBlob]
):
    blob.pin()
    blob.discard()
    assert (loose, blob.read(0, 4)) == ([], b"HEAD")
    blob.unpin()
    blob.discard()
    assert loose == [blob]
    for use in (blob.pin, lambda: blob.read(0, 1), lambda: blob.read_nowait(0, 1)):
        with pytest.raises(LocalProtocolError):
            use()


def test_an_unpin_without_a_pin_is_refused(blob: StoredBlob):
    with pytest.raises(LocalProtocolError):
        blob.unpin()
