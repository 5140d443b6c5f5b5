"""Where replay blobs live: the protocol that every store keeps.

A replay blob is the base64 text of the expert ids of one reply (`routed_experts`, `indexer_topk`):
more than 99 % of an engine's reply, never needed while chatting, read back bit for bit.

Must not know what a turn or a record is.

Spec: docs/replay.md#store
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from sessions.replay.blobs import ReplayBlob


class ReplayStore(Protocol):
    """Blobs by session."""

    @property
    def stored_bytes(self) -> int:
        """Bytes of all blobs held now."""
        ...

    def put(self, session_id: str, blob: bytes | memoryview) -> ReplayBlob:
        """Keep a blob.

        Args:
            session_id: The session that the blob belongs to.
            blob: Its bytes; copied or kept, the caller must not change them.

        Returns:
            The handle by which it is read.
        """
        ...

    def discard(self, session_id: str, blobs: Sequence[ReplayBlob]) -> None:
        """Forget blobs of a session (their turn was rolled back); unknown ones are ignored."""
        ...

    def drop_session(self, session_id: str) -> None:
        """Forget all blobs of a session; unknown ids are ignored."""
        ...
