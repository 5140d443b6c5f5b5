"""The blobs of one session: which are there, and when all is over."""

from __future__ import annotations

from sessions.replay.blob import BlobText, StoredBlob
from sessions.replay.extents import Extent
from sessions.replay.session_blobs import SessionBlobs
from sessions.replay.session_file import MemoryFiles
from sessions.replay.session_space import Tally


class Stage:
    """A session whose blobs are what the test says, and how often it ended."""

    def __init__(self) -> None:
        self.tally = Tally()
        self.ends = 0
        self.blobs = SessionBlobs("s", MemoryFiles(), self.tally, self.on_empty)
        region = self.blobs.space.take(None)
        region.tip, region.held_from = 1000, None

    def on_empty(self, blobs: SessionBlobs) -> None:
        assert blobs is self.blobs
        self.ends += 1

    def keep(self, *extents: tuple[int, int], field: str | None = "f") -> StoredBlob:
        text = BlobText(
            size_bytes=sum(stop - start for start, stop in extents) + 4,
            first=b"head",
            last=b"tail",
            inline_head=b"",
            extents=[Extent(*extent) for extent in extents],
            inline_tail=b"tail",
        )
        self.blobs.begin()
        return self.blobs.keep(field, text, [])


def test_the_latest_blob_of_a_field_is_the_newest_that_may_be_shared():
    stage = Stage()
    assert stage.blobs.latest("f") is None
    one, two = stage.keep((0, 5)), stage.keep((0, 9))
    stage.keep((0, 7), field=None)
    stage.keep((0, 8), field="g")
    assert stage.blobs.latest("f") is two
    stage.blobs.discard(two)
    assert stage.blobs.latest("f") is one


def test_blobs_that_go_on_have_the_same_first_bytes_and_more():
    stage = Stage()
    stage.keep((0, 5))
    longer, elsewhere = stage.keep((0, 9)), stage.keep((20, 30))
    found = list(stage.blobs.going_on("f", [Extent(0, 5)], 5))
    assert found == [longer]
    assert next(stage.blobs.going_on("f", [], 0)) is elsewhere


def test_a_session_ends_with_its_last_blob_and_its_last_writer():
    stage = Stage()
    blob = stage.keep((0, 5))
    stage.blobs.begin()
    stage.blobs.discard(blob)
    assert stage.ends == 0
    stage.blobs.abandon([])
    assert stage.ends == 1
    assert stage.tally == Tally()


def test_a_dropped_session_ends_at_once_if_nothing_is_pinned_or_written():
    stage = Stage()
    one = stage.keep((0, 5))
    stage.keep((0, 9), field=None)
    stage.blobs.drop()
    assert (stage.ends, one.is_freed) == (1, True)
    assert stage.tally == Tally()


def test_a_dropped_session_ends_with_the_last_pin():
    stage = Stage()
    pinned, other = stage.keep((0, 5)), stage.keep((0, 9))
    pinned.pin()
    stage.blobs.drop()
    assert (stage.ends, other.is_freed, pinned.is_freed) == (0, True, False)
    assert stage.tally.blobs == 1
    pinned.unpin()
    assert stage.ends == 1
    assert stage.tally == Tally()


def test_a_blob_discarded_and_pinned_before_the_drop_is_not_lost():
    stage = Stage()
    pinned, other = stage.keep((0, 5)), stage.keep((0, 9))
    pinned.pin()
    stage.blobs.discard(pinned)
    stage.blobs.drop()
    assert (stage.ends, other.is_freed, pinned.is_freed) == (0, True, False)
    assert stage.tally.stored_bytes == pinned.size_bytes
    pinned.unpin()
    assert stage.ends == 1


def test_a_blob_of_another_session_is_not_discarded():
    stage, other = Stage(), Stage()
    blob = other.keep((0, 5))
    stage.blobs.discard(blob)
    assert not blob.is_discarded
