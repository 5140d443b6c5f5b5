"""The blobs of one session: which there are, which one the next may share with, when all is over.

Must not know bytes: `session_space.py` has them.

Spec: docs/replay.md#sharing
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from itertools import islice
from typing import Final

from sessions.replay.blob import BlobText, StoredBlob
from sessions.replay.blobs import ReplayBlob
from sessions.replay.extents import Extent, prefix
from sessions.replay.regions import Region
from sessions.replay.session_file import Files
from sessions.replay.session_space import SessionSpace, Tally

# Blobs that a writer looks at when the one that it compares with goes on differently (a guess).
CANDIDATES: Final = 32


class SessionBlobs:
    """See the module docstring.

    Attributes:
        session_id: Whose blobs these are.
        space: Where their bytes are.
    """

    def __init__(
        self, session_id: str, files: Files, tally: Tally, on_empty: Callable[[SessionBlobs], None]
    ) -> None:
        """Have no blob yet.

        Args:
            session_id: Whose blobs.
            files: Makes the file.
            tally: The store's, kept up to date.
            on_empty: Called when the last blob and the last writer are gone.
        """
        self.session_id = session_id
        self.space = SessionSpace(files, tally)
        self._tally = tally
        self._on_empty = on_empty
        # By field, the oldest first; a blob that is not shared stands under no field.
        self._live: dict[str | None, dict[StoredBlob, None]] = {}
        self._held_count = 0  # blobs not freed, discarded ones included
        self._writer_count = 0
        tally.sessions += 1

    def latest(self, field: str) -> StoredBlob | None:
        """The newest blob of a field."""
        return next(reversed(self._live.get(field, {})), None)

    def known(self, field: str, blob: ReplayBlob | None) -> StoredBlob | None:
        """A blob if it is one of a field that may be shared, else None."""
        is_known = isinstance(blob, StoredBlob) and blob in self._live.get(field, {})
        return blob if is_known and isinstance(blob, StoredBlob) else None

    def going_on(self, field: str, extents: list[Extent], place: int) -> Iterator[StoredBlob]:
        """Blobs whose body has the same first bytes and is longer; the newest first.

        Args:
            field: Of the blobs.
            extents: Where the first bytes lie; the same bytes elsewhere are not found.
            place: How many they are.
        """
        longer = (b for b in reversed(self._live.get(field, {})) if b.body_bytes > place)
        for blob in islice(longer, CANDIDATES):
            if prefix(blob.text.extents, place) == extents:
                yield blob

    def begin(self) -> None:
        """A writer begins; it must `keep` or `abandon`."""
        self._writer_count += 1

    def keep(self, field: str | None, text: BlobText, regions: Iterable[Region]) -> StoredBlob:
        """A writer finished.

        Args:
            field: Later blobs of it may share with this one; None if none may.
            text: Where the blob is.
            regions: Those that its writer held.
        """
        self.space.keep(text.extents, regions)
        blob = StoredBlob(text, self.space.file, self._free)
        self._live.setdefault(field, {})[blob] = None
        self._held_count += 1
        self._writer_count -= 1
        self._tally.blobs += 1
        self._tally.stored_bytes += text.inline_bytes
        return blob

    def abandon(self, regions: Iterable[Region]) -> None:
        """A writer gave up."""
        self.space.abandon(regions)
        self._writer_count -= 1
        self._end_if_empty()

    def discard(self, blob: StoredBlob) -> None:
        """Forget a blob; nothing happens if it is not one of these."""
        for blobs in self._live.values():
            if blob in blobs:
                del blobs[blob]
                blob.discard()
                return

    def drop(self) -> None:
        """Forget all blobs."""
        live = [blob for blobs in self._live.values() for blob in reversed(blobs)]
        self._live.clear()
        is_last = not self._writer_count and len(live) == self._held_count
        if is_last and not any(blob.is_pinned for blob in live):
            for blob in live:
                blob.is_discarded = blob.is_freed = True
                self._forget(blob)
            self._end_if_empty()  # frees the file as a whole
            return
        for blob in live:
            blob.discard()

    def _free(self, blob: StoredBlob) -> None:
        self.space.release(blob.text.extents)
        self._forget(blob)
        self._end_if_empty()

    def _forget(self, blob: StoredBlob) -> None:
        self._held_count -= 1
        self._tally.blobs -= 1
        self._tally.stored_bytes -= blob.text.inline_bytes

    def _end_if_empty(self) -> None:
        if not self._held_count and not self._writer_count:
            self.space.close()
            self._tally.sessions -= 1
            self._on_empty(self)
