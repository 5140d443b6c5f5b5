"""The bytes of one session's blobs: a file, who appends where, and what is still needed.

Must not know what a blob's text is.

Spec: docs/replay.md#files
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from sessions.replay.extents import Extent, ReferenceCounts
from sessions.replay.regions import Region, Regions
from sessions.replay.session_file import Files, SessionFile


@dataclass(slots=True, kw_only=True)
class Tally:
    """What a store holds now; one per store, kept by its sessions.

    Attributes:
        sessions: With blobs, finished or not.
        blobs: Finished and readable, pinned ones that were discarded included.
        stored_bytes: All bytes, shared ones once, those of unfinished blobs included.
        unfinished_bytes: Of these, bytes that only unfinished blobs need.
        files: Open files.
    """

    sessions: int = 0
    blobs: int = 0
    stored_bytes: int = 0
    unfinished_bytes: int = 0
    files: int = 0


class SessionSpace:
    """The file of one session; it is opened when the first byte is written."""

    def __init__(self, files: Files, tally: Tally) -> None:
        """Open nothing yet."""
        self._files = files
        self._tally = tally
        self._file: SessionFile | None = None
        self._regions = Regions(files.region_bytes)
        self._counts = ReferenceCounts()

    @property
    def file(self) -> SessionFile | None:
        """The file, if there is one yet."""
        return self._file

    def open(self) -> SessionFile:
        """The file, made if there is none.

        Raises:
            OSError: It cannot be made.
        """
        if self._file is None:
            self._file = self._files.open()
            self._tally.files += 1
        return self._file

    def take(self, wanted: int | None) -> Region:
        """A region to append to; see `Regions.take`."""
        return self._regions.take(wanted)

    def extend(self, region: Region, size_bytes: int) -> Extent:
        """Reserve the next bytes of a held region; they are unfinished until `keep`."""
        start = region.tip
        region.tip += size_bytes
        self._tally.unfinished_bytes += size_bytes
        self._tally.stored_bytes += size_bytes
        if self._file is not None:
            self._file.reach(region.tip)
        return Extent(start, region.tip)

    def keep(self, extents: Sequence[Extent], regions: Iterable[Region]) -> None:
        """A writer finished.

        Args:
            extents: All that its blob needs, shared bytes included.
            regions: Those that it held; what it wrote and the blob does not need is freed.
        """
        before = self._counts.total_bytes
        self._counts.add(extents)
        self._tally.stored_bytes += self._counts.total_bytes - before
        self._give_back(regions)

    def abandon(self, regions: Iterable[Region]) -> None:
        """A writer gave up: free what it wrote."""
        self._give_back(regions)

    def release(self, extents: Iterable[Extent]) -> None:
        """A blob is needed no longer: free what no other one needs."""
        for freed in self._counts.remove(extents):
            self._tally.stored_bytes -= freed.size_bytes
            start = freed.start
            while start < freed.stop:
                region = self._regions.at(start)
                part = Extent(start, min(freed.stop, region.stop))
                self._free(region, part)
                start = part.stop

    def close(self) -> None:
        """Free everything; the space may be used again."""
        if self._file is not None:
            self._file.close()
            self._file = None
            self._tally.files -= 1
        self._tally.stored_bytes -= self._counts.total_bytes
        self._counts = ReferenceCounts()
        self._regions = Regions(self._files.region_bytes)

    def _give_back(self, regions: Iterable[Region]) -> None:
        for region in regions:
            if region.held_from is None:
                continue
            written = Extent(region.held_from, region.tip)
            self._tally.unfinished_bytes -= written.size_bytes
            self._tally.stored_bytes -= written.size_bytes
            region.held_from = None
            needed_to = max(region.start, self._counts.last_before(region.tip))
            if needed_to < region.tip:
                self._free(region, Extent(max(needed_to, written.start), region.tip))

    def _free(self, region: Region, part: Extent) -> None:
        """Give the space of unneeded bytes back, with what lies unneeded around them."""
        limit = region.tip if region.held_from is None else region.held_from
        gap = self._counts.gap_around(part, max(limit, part.stop))
        if self._file is not None:
            self._file.free(max(gap.start, region.start), gap.stop)
        if region.held_from is None:
            region.tip = max(region.start, self._counts.last_before(region.tip))
