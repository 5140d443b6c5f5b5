"""A replay store of plain bytes that can be made to wait and to fail.

It shares as the real store does, says what was shared, and can be told to take only so many bytes
before it must be waited for, to have nothing to read at once, and to have a broken disk.

Spec: docs/replay.md#store
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable

from sessions.errors.group import ReplayStoreError
from sessions.replay.blobs import ReplayBlob


class SlowBlob:
    """A stored blob; counts its pins."""

    def __init__(self, store: SlowStore, text: bytes) -> None:
        self._store = store
        self.text = text
        self.pins = 0

    @property
    def size_bytes(self) -> int:
        return len(self.text)

    @property
    def head(self) -> bytes:
        return self.text[:256]

    @property
    def tail(self) -> bytes:
        return self.text[-4:]

    def read_nowait(self, start: int, stop: int) -> bytes | None:
        assert 0 <= start <= stop <= len(self.text)
        assert stop - start <= 1 << 20
        return None if self._store.is_on_disk else self.text[start:stop]

    def read(self, start: int, stop: int) -> bytes:
        self._store.reads += 1
        return self.text[start:stop]

    def pin(self) -> None:
        self.pins += 1

    def unpin(self) -> None:
        self.pins -= 1


class SlowWriter:
    """A blob while it arrives."""

    def __init__(self, store: SlowStore, session_id: str, field: str) -> None:
        self._store = store
        self._key = (session_id, field)
        self._text = bytearray()
        self._room = store.takes
        self._earlier = store.latest.get(self._key, b"")
        self._shared = 0

    @property
    def new_bytes(self) -> int:
        return len(self._text) - self._shared

    def feed_nowait(self, piece: bytes | memoryview) -> tuple[int, int]:
        taken = bytes(piece[: self._room])
        self._room -= len(taken)
        shared = 0
        if self._shared == len(self._text):
            earlier = self._earlier[self._shared : self._shared + len(taken)]
            shared = _common_prefix(earlier, taken)
        self._text += taken
        self._shared += shared
        return len(taken), shared

    async def wait_ready(self) -> None:
        self._store.waits += 1
        await asyncio.sleep(0)
        if self._store.is_broken:
            raise ReplayStoreError("the disk is full")
        self._room = self._store.takes

    async def finish(self, *, is_shared: bool = True) -> ReplayBlob:
        await asyncio.sleep(0)
        if self._store.is_broken:
            raise ReplayStoreError("the disk is full")
        blob = SlowBlob(self._store, bytes(self._text))
        self._store.writers.remove(self)
        self._store.blobs.append(blob)
        self._store.all_blobs.append(blob)
        self._store.new_bytes += self.new_bytes
        if is_shared:
            self._store.latest[self._key] = blob.text
        return blob

    def abort(self) -> None:
        if self in self._store.writers:
            self._store.writers.remove(self)


class SlowStore:
    """Implements `ReplayStore`.

    Attributes:
        takes: Bytes that a writer takes before it must be waited for.
        is_on_disk: Nothing can be read without waiting.
        is_broken: Whatever waits for the disk fails.
        blobs: Those stored now.
        all_blobs: Those ever finished.
        writers: Those begun and neither finished nor aborted.
        latest: The newest text by session and field that others may share.
        begun: Of each writer ever begun, the field and the blob that it may go on from.
        new_bytes: Bytes of finished blobs that were not shared.
        waits, reads: How often the disk was waited for.
    """

    def __init__(self, *, takes: int = 1 << 40, is_on_disk: bool = False) -> None:
        self.takes = takes
        self.is_on_disk = is_on_disk
        self.is_broken = False
        self.blobs: list[ReplayBlob] = []
        self.all_blobs: list[SlowBlob] = []
        self.writers: list[SlowWriter] = []
        self.latest: dict[tuple[str, str], bytes] = {}
        self.begun: list[tuple[str, ReplayBlob | None]] = []
        self.new_bytes = 0
        self.waits = 0
        self.reads = 0

    @property
    def stored_bytes(self) -> int:
        return sum(blob.size_bytes for blob in self.blobs)

    def begin(self, session_id: str, field: str, after: ReplayBlob | None = None) -> SlowWriter:
        self.begun.append((field, after))
        writer = SlowWriter(self, session_id, field)
        self.writers.append(writer)
        return writer

    def discard(self, session_id: str, blobs: Iterable[ReplayBlob]) -> None:
        for blob in blobs:
            if blob in self.blobs:
                self.blobs.remove(blob)

    def drop_session(self, session_id: str) -> None:
        self.latest = {key: text for key, text in self.latest.items() if key[0] != session_id}


def _common_prefix(one: bytes, other: bytes) -> int:
    if other.startswith(one):
        return len(one)
    return next(
        (at for at, (a, b) in enumerate(zip(one, other, strict=False)) if a != b), len(other)
    )
