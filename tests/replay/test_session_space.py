"""The bytes of one session: what is kept, what is freed, what is counted."""

from __future__ import annotations

import os

from sessions.replay.extents import Extent
from sessions.replay.regions import Region
from sessions.replay.session_file import MemoryFiles
from sessions.replay.session_space import SessionSpace, Tally

PAGE = 4096


def written(space: SessionSpace, pages: int, wanted: int | None = None) -> tuple[Region, Extent]:
    """A writer of whole pages; not finished."""
    file = space.open()
    region = space.take(wanted)
    extent = space.extend(region, pages * PAGE)
    file.write(b"x" * extent.size_bytes, extent.start)
    return region, extent


def pages_of(space: SessionSpace) -> int:
    return 0 if space.file is None else os.fstat(space.file._fd).st_blocks * 512 // PAGE


def test_no_file_is_opened_before_something_is_written():
    tally = Tally()
    space = SessionSpace(MemoryFiles(), tally)
    region = space.take(None)
    space.abandon([region])
    assert (space.file, tally.files) == (None, 0)
    space.close()
    assert tally == Tally()


def test_unfinished_bytes_become_stored_ones_or_nothing():
    tally = Tally()
    space = SessionSpace(MemoryFiles(), tally)
    region, extent = written(space, 3)
    assert (tally.unfinished_bytes, tally.stored_bytes) == (3 * PAGE, 3 * PAGE)
    space.keep([extent], [region])
    assert (tally.unfinished_bytes, tally.stored_bytes) == (0, 3 * PAGE)
    other, _ = written(space, 2, extent.stop)
    space.abandon([other])
    assert (tally.unfinished_bytes, tally.stored_bytes) == (0, 3 * PAGE)
    assert pages_of(space) == 3
    space.close()
    assert tally == Tally()


def test_what_a_finished_blob_does_not_need_is_freed_and_written_over():
    space = SessionSpace(MemoryFiles(), Tally())
    region, extent = written(space, 3)
    space.keep([Extent(0, PAGE)], [region])
    assert pages_of(space) == 1
    assert space.take(PAGE) is region
    assert extent.stop == 3 * PAGE
    space.close()


def test_a_hole_grows_over_what_was_freed_beside_it():
    space = SessionSpace(MemoryFiles(), Tally())
    region, extent = written(space, 4)
    parts = [Extent(0, 6000), Extent(6000, 2 * PAGE), Extent(2 * PAGE, 4 * PAGE)]
    space.keep([parts[2]], [region])
    space.keep([parts[0]], [])
    space.keep([parts[1]], [])
    assert extent == Extent(parts[0].start, parts[2].stop)
    space.release([parts[0]])
    assert pages_of(space) == 3
    space.release([parts[1]])
    assert pages_of(space) == 2, "the page that both lay on is freed with the second"
    space.close()


def test_a_freed_range_beside_a_writer_leaves_its_bytes_alone():
    space = SessionSpace(MemoryFiles(), Tally())
    region, first = written(space, 2)
    space.keep([first], [region])
    held, second = written(space, 2, first.stop)
    assert held is region
    space.release([first])
    assert pages_of(space) == 2
    assert space.file is not None
    assert space.file.read(*second) == b"x" * 2 * PAGE
    space.keep([second], [held])
    space.release([second])
    assert (pages_of(space), region.tip) == (0, 0)
    space.close()


def test_what_another_writer_has_not_finished_is_not_freed():
    space = SessionSpace(MemoryFiles(), Tally())
    held, first = written(space, 2)
    other, second = written(space, 2)
    space.keep([second], [other])
    space.release([second])
    assert pages_of(space) == 2
    assert space.file is not None
    assert space.file.read(*first) == b"x" * 2 * PAGE
    space.abandon([held])
    assert pages_of(space) == 0
    space.close()


def test_regions_do_not_free_each_other():
    space = SessionSpace(MemoryFiles(), Tally())
    one, first = written(space, 2)
    two, second = written(space, 2)
    space.keep([first], [one])
    space.keep([second], [two])
    space.release([first])
    assert pages_of(space) == 2
    assert space.file is not None
    assert space.file.read(*second) == b"x" * 2 * PAGE
    space.close()
