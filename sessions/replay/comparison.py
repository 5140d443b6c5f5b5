"""What a growing blob shares with earlier ones of its session, found by comparing while it arrives.

The blob is compared with the newest one of its field. Where that one goes on differently, or ends,
another that has the same first bytes may go on equally (a sibling in a tree, a turn tried again):
it is then compared with that one. When none does, the rest is the blob's own.

The blob compared with is pinned until `end`, so the shared bytes stay.

Must not know how new bytes are stored.

Spec: docs/replay.md#sharing
"""

from __future__ import annotations

from typing import Final

from sessions.replay.blob import StoredBlob
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

    def __init__(self, blobs: SessionBlobs, field: str, scratch: bytearray) -> None:
        """Begin with the newest blob of the field.

        Args:
            blobs: Of the session.
            field: Of the blob that arrives.
            scratch: Room to read into; shared by all comparisons of one thread.
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
        first = blobs.latest(field)
        if first is None:
            self.is_over = True
        else:
            self._choose(first)

    @property
    def extents(self) -> list[Extent]:
        """Where the shared bytes lie."""
        return [] if self._base is None else prefix(self._base.text.extents, self.place)

    def feed_nowait(self, view: memoryview) -> int:
        """Compare the next bytes.

        Returns:
            How many, from the first on, are shared. If not all, either `is_over`, or `wants_disk`:
            feed the rest after `read_ahead`.
        """
        done = 0
        while done < len(view) and not self.is_over and not self.wants_disk:
            done += self._step(view[done:])
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

    def _step(self, view: memoryview) -> int:
        """Compare up to one scratch; how many bytes are shared."""
        base = self._base
        size = min(len(view), len(self._scratch), self._limit_bytes - self.place)
        if base is None or not size:
            self._switch(view)
            return 0
        count = self._peek(base, size)
        if count is None:
            self.wants_disk = True
            return 0
        equal = common_bytes(self._scratch, view[:count])
        self.place += equal
        if equal < count:
            self._switch(view[equal:])
        return equal

    def _peek(self, base: StoredBlob, size: int) -> int | None:
        """Read base bytes into the scratch."""
        start, ahead = self._ahead
        if start <= self.place < start + len(ahead):
            part = ahead[self.place - start :][:size]
            self._scratch[: len(part)] = part
            return len(part)
        try:
            return base.peek_nowait(self.place, memoryview(self._scratch)[:size])
        except OSError as error:
            self._failure = error
            return None

    def _switch(self, view: memoryview) -> None:
        """The base goes on differently, or ends: look for one that goes on like the view."""
        for blob in self._blobs.going_on(self._field, self.extents, self.place):
            if blob is self._base or _limit_of(blob) <= self.place:
                continue
            size = min(len(view), _PEEK_BYTES, _limit_of(blob) - self.place)
            count = self._peek_other(blob, size)
            if count and common_bytes(self._scratch, view[:count]) >= min(count, TELLING_BYTES):
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


def common_bytes(scratch: bytearray, view: memoryview) -> int:
    """How many first bytes are equal; the scratch is at least as long as the view."""
    if scratch.startswith(view):  # memcmp; comparing memoryviews takes ten times as long
        return len(view)
    low, high = 0, len(view)  # the first `low` are equal, the first `high` are not
    while high - low > 1:
        middle = (low + high) // 2
        if scratch.startswith(view[low:middle], low):
            low = middle
        else:
            high = middle
    return low


def _limit_of(blob: StoredBlob) -> int:
    extents = blob.text.extents
    if len(extents) < CHAIN_LIMIT:
        return blob.body_bytes
    return total_bytes(extents[: CHAIN_LIMIT // 2])
