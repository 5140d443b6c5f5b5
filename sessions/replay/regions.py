"""Where in a session's file a writer may append: one region each, so that writers never meet.

A file is divided into regions of equal size, far apart in offsets and empty until written: the
file is sparse. A blob that goes on where another one ends goes on in that one's region, if nobody
else did; so the blobs of a session that only grows lie in one piece.

Pure: knows no file.

Spec: docs/replay.md#files
"""

from __future__ import annotations

from dataclasses import dataclass

from sessions.errors.unseen import LocalProtocolError


@dataclass(slots=True, kw_only=True, eq=False)
class Region:
    """A part of the file for one writer at a time.

    Attributes:
        start: Its first offset.
        stop: The offset behind its last.
        tip: Where the next byte goes.
        held_from: The tip as it was when the writer that holds it took it; None if no one does.
    """

    start: int
    stop: int
    tip: int
    held_from: int | None = None

    @property
    def room_bytes(self) -> int:
        """Bytes that still fit."""
        return self.stop - self.tip


class Regions:
    """All regions of one file."""

    __slots__ = ("_regions", "_size_bytes")

    def __init__(self, size_bytes: int) -> None:
        """Make none yet.

        Args:
            size_bytes: Of each region.
        """
        self._size_bytes = size_bytes
        self._regions: list[Region] = []

    def take(self, wanted: int | None) -> Region:
        """Hold a region for a writer.

        Args:
            wanted: The offset at which the writer would like to go on, or None.

        Returns:
            The region whose tip is there, if nobody holds it and it has room; else an empty one.
        """
        region = self._at_tip(wanted) or self._empty()
        region.held_from = region.tip
        return region

    def at(self, offset: int) -> Region:
        """The region in which an offset lies.

        Raises:
            LocalProtocolError: There is none.
        """
        index = offset // self._size_bytes
        if index >= len(self._regions):
            raise LocalProtocolError(f"no region at {offset}")
        return self._regions[index]

    def _at_tip(self, wanted: int | None) -> Region | None:
        for region in self._regions:
            if region.tip == wanted and region.held_from is None and region.room_bytes:
                return region
        return None

    def _empty(self) -> Region:
        for region in self._regions:
            if region.tip == region.start and region.held_from is None:
                return region
        start = len(self._regions) * self._size_bytes
        made = Region(start=start, stop=start + self._size_bytes, tip=start)
        self._regions.append(made)
        return made
