"""What a growing blob shares with earlier ones of its session, found by comparing while it arrives.

The blob is compared with the one that its turn goes on from, or else with the newest one of its
field. Where that one goes on differently, or ends,
another that has the same first bytes may go on equally (a sibling in a tree, a turn tried again):
it is then compared with that one. When none does, the rest is the blob's own.

Bytes of a file in memory are looked at where they are; those of a disk are read into a scratch.

The blob compared with is pinned until `end`, so the shared bytes stay.

Must not know how new bytes are stored.

Spec: docs/replay.md#sharing
"""

from __future__ import annotations

from typing import Final

from sessions.replay.blob import StoredBlob
from sessions.replay.blobs import ReplayBlob
from sessions.replay.extents import Extent, prefix, total_bytes
from sessions.replay.session_blobs import SessionBlobs

# A longer chain is not shared whole but only its first half, so reading stays cheap (a guess).
CHAIN_LIMIT: Final = 256
# So many equal bytes are no chance; fewer count only when there are no more to compare.
TELLING_BYTES: Final = 64
_PEEK_BYTES: Final = 4096
_AHEAD_BYTES: Final = 1 << 20


class Comparison:
    """Compares one blob's body from its first byte on; see the module docstring."""

    def __init__(
        self,
        blobs: SessionBlobs,
        field: str,
        scratch: bytearray,
        after: ReplayBlob | None = None,
    ) -> None:
        """Begin with one blob.

        Args:
            blobs: Of the session.
            field: Of the blob that arrives.
            scratch: Room to read into; shared by all comparisons of one thread.
            after: The blob to begin with, if the session has it still; else the field's newest.
        """
        self._blobs = blobs
        self._field = field
        self._scratch = scratch
        self._base: StoredBlob | None = None
        self._limit_bytes = 0  # of the base, where sharing ends
        self._ahead: tuple[int, bytes] = (0, b"")  # bytes of the base that a thread read
        self._failure: OSError | None = None
        self.place = 0
        self.is_over = False
        self.wants_disk = False
        first = blobs.known(field, after) or blobs.latest(field)
        if first is None:
            self.is_over = True
        else:
            self._choose(first)

    @property
    def extents(self) -> list[Extent]:
        """Where the shared bytes lie."""
        return [] if self._base is None else prefix(self._base.text.extents, self.place)

    def feed_nowait(self, piece: bytes | memoryview) -> int:
        """Compare the next bytes.

        Args:
            piece: The bytes; a view is copied.

        Returns:
            How many, from the first on, are shared. If not all, either `is_over`, or `wants_disk`:
            feed the rest after `read_ahead`.
        """
        data = piece if isinstance(piece, bytes) else bytes(piece)
        done = 0
        while done < len(data) and not self.is_over and not self.wants_disk:
            done += self._step(data, done)
        return done

    def read_ahead(self) -> None:
        """Read what is compared next; for a thread. It may fail: see `failure`."""
        base = self._base
        if base is None:
            return
        found = bytearray(_AHEAD_BYTES)
        try:
            count = base.peek(self.place, memoryview(found))
        except OSError as error:
            self._failure = error
        else:
            self._ahead = (self.place, bytes(found[:count]))
            self.wants_disk = False

    def end(self) -> None:
        """Let go of the blob that was compared with; its shared bytes must be kept by now."""
        self.is_over = True
        base, self._base = self._base, None
        if base is not None:
            base.unpin()

    @property
    def failure(self) -> OSError | None:
        """The first failure of the disk, if there was one."""
        return self._failure

    def _step(self, data: bytes, done: int) -> int:
        """Compare bytes from one on, as many as the base gives at once; how many are shared."""
        base = self._base
        size = min(len(data) - done, self._limit_bytes - self.place)
        if base is None or not size:
            self._switch(data, done)
            return 0
        found = base.view_nowait(self.place, size)
        if found is None:
            found = self._peek(base, size)
        if found is None:
            self.wants_disk = True
            return 0
        equal = common_bytes(data, done, found)
        self.place += equal
        if equal < len(found):
            self._switch(data, done + equal)
        return equal

    def _peek(self, base: StoredBlob, size: int) -> memoryview | None:
        """Base bytes, copied; None if a disk must be waited for."""
        start, ahead = self._ahead
        if start <= self.place < start + len(ahead):
            return memoryview(ahead)[self.place - start :][:size]
        into = memoryview(self._scratch)[:size]
        try:
            count = base.peek_nowait(self.place, into)
        except OSError as error:
            self._failure = error
            return None
        return None if count is None else into[:count]

    def _switch(self, data: bytes, done: int) -> None:
        """The base goes on differently, or ends: look for one that goes on like the data."""
        for blob in self._blobs.going_on(self._field, self.extents, self.place):
            if blob is self._base or _limit_of(blob) <= self.place:
                continue
            size = min(len(data) - done, _PEEK_BYTES, _limit_of(blob) - self.place)
            count = self._peek_other(blob, size)
            other = memoryview(self._scratch)[:count]
            if count and common_bytes(data, done, other) >= min(count, TELLING_BYTES):
                self._choose(blob)
                return
        self.is_over = True
        if not self.place:
            self.end()

    def _peek_other(self, blob: StoredBlob, size: int) -> int:
        try:
            return blob.peek_nowait(self.place, memoryview(self._scratch)[:size]) or 0
        except OSError:
            return 0

    def _choose(self, blob: StoredBlob) -> None:
        blob.pin()
        if self._base is not None:
            self._base.unpin()
        self._base = blob
        self._limit_bytes = _limit_of(blob)
        self._ahead = (0, b"")


def common_bytes(data: bytes, done: int, other: memoryview) -> int:
    """How many bytes of the data, from one on, are the first ones of another; all if it is empty.

    Args:
        data: Ends not before the other does.
        done: Where in it to begin.
        other: At least as many bytes as can be equal.
    """
    if data.startswith(other, done):  # memcmp; comparing memoryviews takes ten times as long
        return len(other)
    low, high = 0, len(other)  # the first `low` are equal, the first `high` are not
    while high - low > 1:
        middle = (low + high) // 2
        if data.startswith(other[low:middle], done + low):
            low = middle
        else:
            high = middle
    return low


def _limit_of(blob: StoredBlob) -> int:
    extents = blob.text.extents
    if len(extents) < CHAIN_LIMIT:
        return blob.body_bytes
    return total_bytes(extents[: CHAIN_LIMIT // 2])
