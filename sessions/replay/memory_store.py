"""Replay blobs in memory, as they came: the simplest `ReplayStore`.

A handle holds its bytes, so a reader that has one is not disturbed when the session is dropped;
the memory goes when the last handle does.

Must not know what a turn or a record is.

Spec: docs/replay.md#memory
"""

from __future__ import annotations

from collections.abc import Sequence

from sessions.replay.blobs import ReplayBlob


class MemoryBlob:
    """A blob that is a bytes object."""

    __slots__ = ("_bytes",)

    def __init__(self, blob: bytes) -> None:
        self._bytes = blob

    @property
    def size_bytes(self) -> int:
        """Length of the blob."""
        return len(self._bytes)

    @property
    def head(self) -> bytes:
        """Its first characters, up to 256."""
        return self._bytes[:256]

    @property
    def tail(self) -> bytes:
        """Its last characters, up to 4."""
        return self._bytes[-4:]

    def read_nowait(self, start: int, stop: int) -> bytes | None:
        """Bytes [start, stop)."""
        return self._bytes[start:stop]

    def read(self, start: int, stop: int) -> bytes:
        """The same."""
        return self._bytes[start:stop]

    def pin(self) -> None:
        """Nothing to do: who holds the handle holds the bytes."""

    def unpin(self) -> None:
        """Nothing to do."""


class MemoryReplayStore:
    """See the module docstring; implements `ReplayStore`."""

    def __init__(self) -> None:
        self._sessions: dict[str, dict[int, ReplayBlob]] = {}
        self._stored_bytes = 0

    @property
    def stored_bytes(self) -> int:
        """Bytes of all blobs held now."""
        return self._stored_bytes

    def put(self, session_id: str, blob: bytes | memoryview) -> ReplayBlob:
        """Keep a blob; a memoryview is copied."""
        kept = MemoryBlob(bytes(blob))
        self._sessions.setdefault(session_id, {})[id(kept)] = kept
        self._stored_bytes += kept.size_bytes
        return kept

    def discard(self, session_id: str, blobs: Sequence[ReplayBlob]) -> None:
        """Forget blobs of a session; unknown ones are ignored."""
        held = self._sessions.get(session_id, {})
        for blob in blobs:
            if held.pop(id(blob), None) is not None:
                self._stored_bytes -= blob.size_bytes
        if not held:
            self._sessions.pop(session_id, None)

    def drop_session(self, session_id: str) -> None:
        """Forget all blobs of a session; unknown ids are ignored."""
        held = self._sessions.pop(session_id, {})
        self._stored_bytes -= sum(blob.size_bytes for blob in held.values())
