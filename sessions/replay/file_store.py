"""The store of replay blobs: each session has one file, in memory or on disk.

`FileReplayStore` implements `ReplayStore`. It finds a session's blobs, makes writers, and ends what
is over; the parts below it do the work, in reading order: `extents`, `regions`, `session_file`,
`session_space`, `blob`, `session_blobs`, `comparison`, `appender`, `blob_writer`.

All methods are for the loop's thread.

Spec: docs/replay.md#store
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Final

from sessions.replay.appender import Appender, QueuedAppender
from sessions.replay.blob import StoredBlob
from sessions.replay.blob_writer import StoreWriter
from sessions.replay.blobs import ReplayBlob
from sessions.replay.comparison import Comparison
from sessions.replay.session_blobs import SessionBlobs
from sessions.replay.session_file import PIECE_BYTES, Files, MemoryFiles, SpoolFiles
from sessions.replay.session_space import Tally

# Threads that wait for the disk (a guess: enough to keep one busy).
THREADS: Final = 4


def open_replay_store(spool_dir: str) -> FileReplayStore:
    """Make the store of a shard.

    Args:
        spool_dir: SESSIONS_SPOOL_DIR, a folder that exists; empty to keep replay in memory.
    """
    return FileReplayStore(SpoolFiles(Path(spool_dir)) if spool_dir else MemoryFiles())


class FileReplayStore:
    """See the module docstring."""

    def __init__(self, files: Files) -> None:
        """Begin empty.

        Args:
            files: Where the sessions' files are made.
        """
        self._files = files
        self._threads: ThreadPoolExecutor | None = None
        if files.waits:
            self._threads = ThreadPoolExecutor(THREADS, thread_name_prefix="sessile-replay")
        self._tally = Tally()
        self._sessions: dict[str, SessionBlobs] = {}
        self._dropped: list[SessionBlobs] = []  # where something is still written or pinned
        self._late: list[tuple[SessionBlobs, Appender]] = []  # aborted while a thread wrote
        self._scratch = bytearray(PIECE_BYTES)

    @property
    def waits(self) -> bool:
        """Whether a disk may be waited for."""
        return self._files.waits

    @property
    def stored_bytes(self) -> int:
        """Bytes held now, shared prefixes once, unfinished blobs included."""
        self._reap()
        return self._tally.stored_bytes

    def usage(self) -> Tally:
        """What is held now, for metrics; a copy."""
        self._reap()
        return dataclasses.replace(self._tally)

    def begin(self, session_id: str, field: str, after: ReplayBlob | None = None) -> StoreWriter:
        """Begin a blob; see `ReplayStore.begin`."""
        self._reap()
        blobs = self._sessions.get(session_id)
        if blobs is None:
            blobs = SessionBlobs(session_id, self._files, self._tally, self._on_empty)
            self._sessions[session_id] = blobs
        comparison = Comparison(blobs, field, self._scratch, after)
        appender = Appender(blobs.space)
        if self._threads is not None:
            appender = QueuedAppender(blobs.space, self._threads)
        return StoreWriter(
            blobs,
            field,
            comparison=comparison,
            appender=appender,
            on_abort=self._on_abort,
            threads=self._threads,
        )

    def discard(self, session_id: str, blobs: Iterable[ReplayBlob]) -> None:
        """Forget blobs; see `ReplayStore.discard`.

        Also those that were finished after their session was dropped.
        """
        self._reap()
        for blob in list(blobs):
            if isinstance(blob, StoredBlob):
                for owner in self._owners(session_id):
                    owner.discard(blob)

    def drop_session(self, session_id: str) -> None:
        """Forget all blobs of a session; see `ReplayStore.drop_session`.

        A blob that is being written keeps its own bytes until its writer ends; if it is finished,
        until it is discarded, or its session dropped again.
        """
        self._reap()
        owners = self._owners(session_id)
        blobs = self._sessions.pop(session_id, None)
        if blobs is not None:
            self._dropped.append(blobs)
        for owner in owners:
            owner.drop()

    def close(self) -> None:
        """Drop all sessions and end the threads; what they write just now is waited for."""
        for session_id in list(self._sessions):
            self.drop_session(session_id)
        if self._threads is not None:
            self._threads.shutdown(cancel_futures=True)
        self._reap()

    def _owners(self, session_id: str) -> list[SessionBlobs]:
        found = [blobs for blobs in self._dropped if blobs.session_id == session_id]
        current = self._sessions.get(session_id)
        return found if current is None else [*found, current]

    def _on_abort(self, blobs: SessionBlobs, appender: Appender) -> None:
        self._late.append((blobs, appender))
        self._reap()

    def _reap(self) -> None:
        """End aborted writers that no thread writes for any more."""
        late, self._late = self._late, []
        for blobs, appender in late:
            if appender.is_busy:
                self._late.append((blobs, appender))
            else:
                blobs.abandon(appender.regions)

    def _on_empty(self, blobs: SessionBlobs) -> None:
        if self._sessions.get(blobs.session_id) is blobs:
            del self._sessions[blobs.session_id]
        elif blobs in self._dropped:
            self._dropped.remove(blobs)
