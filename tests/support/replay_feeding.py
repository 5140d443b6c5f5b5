"""Feeding blobs to a replay store and reading them back.

Spec: docs/architecture.md#tests
"""

from __future__ import annotations

from sessions.replay.blob import StoredBlob
from sessions.replay.blob_writer import StoreWriter
from sessions.replay.blobs import BlobWriter, ReplayBlob
from sessions.replay.file_store import FileReplayStore

READ_BYTES = 1 << 20


async def feed(writer: BlobWriter, text: bytes, piece: int = 100_003) -> int:
    """Feed all of a text, waiting as the writer wants; returns how much was shared."""
    left, shared = memoryview(text), 0
    while left:
        part = left[:piece]
        taken, equal = writer.feed_nowait(part)
        assert 0 <= equal <= taken <= len(part)
        shared += equal
        left = left[taken:]
        if taken < len(part):
            await writer.wait_ready()
    return shared


async def put(
    store: FileReplayStore, text: bytes, session: str = "s", field: str = "f", piece: int = 100_003
) -> StoredBlob:
    """Store a blob."""
    writer: StoreWriter = store.begin(session, field)
    await feed(writer, text, piece)
    return await writer.finish()


def read_all(blob: ReplayBlob) -> bytes:
    """The whole text."""
    starts = range(0, blob.size_bytes, READ_BYTES)
    return b"".join(blob.read(at, min(at + READ_BYTES, blob.size_bytes)) for at in starts)
