"""Replay blobs and where they live: the protocols that every store keeps.

A replay blob is the base64 text of the expert ids of one reply (`routed_experts`, `indexer_topk`):
more than 99 % of an engine's reply, never needed while chatting, read back bit for bit. It is
written piece by piece while it arrives, and read piece by piece, never as a whole.

Must not know what a turn, a record or JSON is.

Spec: docs/replay.md#store
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Protocol


class Readable(Protocol):
    """Bytes of a known length that are somewhere, read range by range."""

    @property
    def size_bytes(self) -> int:
        """How many."""
        ...

    def read_nowait(self, start: int, stop: int) -> bytes | memoryview | None:
        """Bytes [start, stop) if no disk is waited for, else None. For the loop."""
        ...

    def read(self, start: int, stop: int) -> bytes | memoryview:
        """The same, waiting for the disk. For threads.

        Raises:
            ReplayStoreError: The disk failed.
        """
        ...


class ReplayBlob(Readable, Protocol):
    """One stored blob; compared and hashed by identity.

    It stays readable until it is discarded, and after that for as long as it is pinned.
    """

    @property
    def size_bytes(self) -> int:
        """Length of the text."""
        ...

    @property
    def head(self) -> bytes:
        """Its first characters, up to 256: enough for an `.npy` header. Costs no reading."""
        ...

    @property
    def tail(self) -> bytes:
        """Its last characters, up to 4: base64 padding shows there. Costs no reading."""
        ...

    def read_nowait(self, start: int, stop: int) -> bytes | None:
        """Bytes [start, stop) of the text if no disk is waited for, else None.

        Any range within the blob, at most 1 MiB. For the loop.
        """
        ...

    def read(self, start: int, stop: int) -> bytes:
        """The same, waiting for the disk. For threads.

        Raises:
            ReplayStoreError: The disk failed.
        """
        ...

    def pin(self) -> None:
        """Keep the bytes although the blob may be discarded; counted."""
        ...

    def unpin(self) -> None:
        """The opposite of `pin`."""
        ...


class BlobWriter(Protocol):
    """A blob while it arrives. Not finished, it must be aborted."""

    @property
    def new_bytes(self) -> int:
        """Bytes written so far that no earlier blob has."""
        ...

    def feed_nowait(self, piece: bytes | memoryview) -> tuple[int, int]:
        """Take bytes, in order.

        Args:
            piece: Shared only during the call. A view may be copied to be compared.

        Returns:
            (taken, shared): how many bytes were taken, and how many of these, from the first on,
            equal an earlier blob of the session, at this place. Taken is less than the length of
            the piece when the disk must be waited for; feed the rest after `wait_ready`.
        """
        ...

    async def wait_ready(self) -> None:
        """Wait until `feed_nowait` takes bytes again.

        Raises:
            ReplayStoreError: The disk failed or is full; abort.
        """
        ...

    async def finish(self, *, is_shared: bool = True) -> ReplayBlob:
        """The whole text was fed: wait for its last bytes and keep it.

        Args:
            is_shared: Whether later blobs may share its bytes. A text that did not pass the checks
                is kept only to be read back: what equals an earlier blob is not checked again.

        Raises:
            ReplayStoreError: As above; abort.
        """
        ...

    def abort(self) -> None:
        """Forget what was fed. No effect after `finish`."""
        ...


class ReplayStore(Protocol):
    """Blobs by session and field."""

    @property
    def stored_bytes(self) -> int:
        """Bytes that the store holds now, shared prefixes once, unfinished blobs included."""
        ...

    def begin(self, session_id: str, field: str, after: ReplayBlob | None = None) -> BlobWriter:
        """Begin a blob.

        Args:
            session_id: The session that it belongs to.
            field: The name of its JSON member; blobs of one field share prefixes.
            after: A blob of that field that this one may go on from; None for the newest. A wrong
                one costs nothing but room.
        """
        ...

    def discard(self, session_id: str, blobs: Iterable[ReplayBlob]) -> None:
        """Forget blobs (their turn was rolled back or never recorded); unknown ones are ignored."""
        ...

    def drop_session(self, session_id: str) -> None:
        """Forget all blobs of a session, unfinished ones too; unknown ids are ignored."""
        ...
