"""Takes a reply apart while it arrives: blobs to the store, a small JSON text for the parser.

`feed` gets the reply piece by piece. The scanner says where blobs begin; a blob's bytes go to a
writer of the store, what the writer does not know from an earlier blob is checked to be base64, and
a placeholder stands for it in the text. So a reply of any size takes no more memory than its text
and one piece. What cannot be taken at once (the disk is slow; an earlier blob of the same field in
this reply must be finished first, so that a second copy of it is shared and not stored) is kept
until `wait_room`, and no more is taken until then. So is a reply that the budget makes wait.

A reply in which a blob is no base64, or that ends within one, is unusual: it is put together again
and given as it came. No byte is ever lost or changed.

Must not know JSON, nor who feeds.

Spec: docs/replay.md#intake
"""

from __future__ import annotations

import asyncio
import dataclasses
import secrets
from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Final

from sessions.errors.unseen import LocalProtocolError
from sessions.replay.base64_check import Base64Check
from sessions.replay.blobs import BlobWriter, ReplayBlob, ReplayStore
from sessions.replay.budget import IngestBudget
from sessions.replay.scanner import TextScanner
from sessions.replay.taken import READ_BYTES, TakenBlob, TakenText, parts_of

# Text is scanned in such steps, so that little of a blob is copied with the text before it.
_TEXT_STEP_BYTES: Final = 16 * 1024
# Further blobs of one reply stay text: twice the 128 choices that engines allow, both fields, and
# room (a guess).
MAX_BLOBS: Final = 1024
_NOTHING: Final[Mapping[str, ReplayBlob]] = MappingProxyType({})


@dataclass(slots=True, kw_only=True, eq=False)
class _Growing:
    """A blob of this reply. `is_base64` is known when it is closed, `blob` when it is finished."""

    field: str
    placeholder: str
    check: Base64Check = dataclasses.field(default_factory=Base64Check)
    writer: BlobWriter | None = None
    blob: ReplayBlob | None = None
    is_base64: bool = True
    new_bytes: int = 0

    def feed_nowait(self, writer: BlobWriter, piece: bytes) -> int:
        """Take bytes of the blob; how many."""
        taken, shared = writer.feed_nowait(piece)
        self.check.skip(piece[:shared])
        self.check.feed(piece[shared:taken])
        return taken

    def close(self) -> None:
        """Its last byte was fed."""
        self.is_base64 = self.check.finish()


class Intake:
    """Takes one reply; see the module docstring.

    `finish` gives what was taken; `abort` must be called at last, whether that failed or not.
    """

    def __init__(
        self,
        store: ReplayStore,
        session_id: str,
        budget: IngestBudget,
        after: Mapping[str, ReplayBlob] = _NOTHING,
    ) -> None:
        """Begin with an empty reply.

        Args:
            store: Where the blobs go.
            session_id: Whose reply it is.
            budget: What the reply holds is charged there.
            after: The blobs that those of the reply may go on from, by field.
        """
        self.fed_bytes = 0
        self._store = store
        self._session_id = session_id
        self._after = dict(after)  # of fields that had no blob in this reply yet
        self._holder = budget.open()
        self._scanner = TextScanner()
        self._token = secrets.token_hex(16)
        self._blobs: list[_Growing] = []  # in order; the last one may be open
        self._open: _Growing | None = None
        self._left = b""  # fed and not taken yet
        self._is_over = False

    def feed(self, piece: memoryview) -> bool:
        """Take the next bytes of the reply.

        Args:
            piece: Any length; shared only during the call.

        Returns:
            False: it is taken, but no more may be fed until `wait_room` returned.

        Raises:
            LocalProtocolError: The reply was finished or aborted before.
        """
        if self._is_over:
            raise LocalProtocolError("a reply was fed after its end")
        self.fed_bytes += len(piece)
        if self._left:  # fed too early: no reason to lose it
            self._left += piece
            return False
        self._left = bytes(self._take(piece))
        return self._charge() and not self._left

    async def wait_room(self) -> None:
        """Wait until more may be fed.

        Raises:
            ReplayStoreError: The store's disk failed or is full; abort.
        """
        await self._take_the_rest()
        await self._holder.wait_room()

    async def finish(self) -> TakenText:
        """The whole reply was fed: keep its blobs.

        Returns:
            The reply in parts. Its blobs belong to the caller now, to discard if no turn is made of
            them. They can be read until `abort` even if the session is dropped meanwhile.

        Raises:
            ReplayStoreError: The store's disk failed or is full; abort.
        """
        await self._take_the_rest()
        is_usual = self._open is None and all(blob.is_base64 for blob in self._blobs)
        if self._open is not None:
            self._scanner.text += self._open.placeholder.encode("ascii")
        for blob in self._blobs:
            await _finish(blob, is_shared=is_usual)
        text = bytes(self._scanner.text)
        blobs = tuple(
            TakenBlob(placeholder=blob.placeholder, field=blob.field, blob=blob.blob)
            for blob in self._blobs
            if blob.blob is not None
        )
        if not is_usual:
            text = await _restore(text, blobs)
            self._forget()
            self._let_go()
            blobs = ()
        self._is_over = True
        self._holder.release()
        return TakenText(text=text, blobs=blobs)

    def abort(self) -> None:
        """Forget the reply; after `finish` only let go of its blobs. May be done again."""
        if not self._is_over:
            self._is_over = True
            self._forget()
            self._holder.release()
        self._let_go()

    def _take(self, piece: memoryview) -> memoryview:
        """Take what can be taken without waiting; what is left. That is of the open blob."""
        while len(piece):
            blob = self._open
            if blob is None and len(self._blobs) == MAX_BLOBS:
                self._scanner.text += piece
                return piece[:0]
            if blob is None:
                step = piece[:_TEXT_STEP_BYTES]
                start = self._scanner.feed(step)
                if start is None:
                    piece = piece[len(step) :]
                    continue
                piece = piece[start.offset :]
                if start.head:
                    piece = memoryview(start.head + piece)
                blob = self._open = self._begin(start.field)
            if blob.writer is None:
                if self._unfinished(blob.field):
                    return piece
                after = self._after.pop(blob.field, None)
                blob.writer = self._store.begin(self._session_id, blob.field, after)
            # A copy can be searched and compared, a view cannot; while it is in the cache it costs
            # a fifth of what it saves (measured).
            data = bytes(piece)
            quote = data.find(b'"')
            text = data if quote < 0 else data[:quote]
            taken = blob.feed_nowait(blob.writer, text)
            piece = piece[taken:]
            if taken < len(text):
                return piece
            if quote >= 0:
                blob.close()
                self._scanner.text += blob.placeholder.encode("ascii")
                self._open = None
        return piece

    def _begin(self, field_name: str) -> _Growing:
        placeholder = f"replay-blob-{self._token}-{len(self._blobs):08d}"
        blob = _Growing(field=field_name, placeholder=placeholder)
        self._blobs.append(blob)
        return blob

    def _unfinished(self, field_name: str) -> list[_Growing]:
        """Earlier blobs of a field that the next one may share bytes with, once finished."""
        return [
            blob
            for blob in self._blobs
            if blob is not self._open
            and blob.field == field_name
            and blob.blob is None
            and blob.is_base64
        ]

    async def _take_the_rest(self) -> None:
        """Take what was left when something had to be waited for."""
        while self._left:
            blob = self._open
            if blob is not None and blob.writer is not None:
                await blob.writer.wait_ready()
            elif blob is not None:
                for earlier in self._unfinished(blob.field):
                    await _finish(earlier, is_shared=True)
            left, self._left = self._left, b""
            self._left = bytes(self._take(memoryview(left)))
        self._charge()

    def _charge(self) -> bool:
        """Charge what is held now."""
        for blob in self._blobs:
            if blob.writer is not None and blob.blob is None:
                blob.new_bytes = blob.writer.new_bytes
        held = len(self._scanner.text) + len(self._left)
        held += sum(blob.new_bytes for blob in self._blobs)
        return self._holder.charge(held - self._holder.held_bytes)

    def _forget(self) -> None:
        for blob in self._blobs:
            if blob.blob is None and blob.writer is not None:
                blob.writer.abort()
        self._store.discard(
            self._session_id, [blob.blob for blob in self._blobs if blob.blob is not None]
        )

    def _let_go(self) -> None:
        for blob in self._blobs:
            if blob.blob is not None:
                blob.blob.unpin()
        self._blobs.clear()


async def _finish(blob: _Growing, *, is_shared: bool) -> None:
    if blob.blob is None and blob.writer is not None:
        blob.blob = await blob.writer.finish(is_shared=is_shared)
        blob.blob.pin()
        blob.new_bytes = blob.writer.new_bytes


async def _restore(text: bytes, blobs: tuple[TakenBlob, ...]) -> bytes:
    """The reply's own bytes, without holding up the loop."""
    whole = bytearray()
    for part in parts_of(text, blobs):
        if isinstance(part, bytes):
            whole += part
            continue
        for start in range(0, part.size_bytes, READ_BYTES):
            stop = min(start + READ_BYTES, part.size_bytes)
            piece = part.read_nowait(start, stop)
            whole += piece if piece is not None else await asyncio.to_thread(part.read, start, stop)
            await asyncio.sleep(0)
    return bytes(whole)
