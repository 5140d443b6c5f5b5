"""Records: what was sent to the engine and what it answered, one per committed turn.

Everything is rendered when the turn commits: a record is JSON text with its replay blobs stored
apart, so reading a session joins texts and cannot fail. The engine's own bytes are kept when they
are no JSON for a strict reader (`NaN`); a client gets null there unless it asks for the raw text.

Must not know trajectories or HTTP.

Spec: docs/sessions.md#records
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from itertools import chain

from sessions.core.json_text import JsonObject, render_json
from sessions.replay.splice import SplicedText, cut_blobs
from sessions.replay.store import ReplayBlob


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Record:
    """One committed turn.

    Attributes:
        head: JSON text of the members before `response`, from the opening brace on.
        response: The engine's reply as strict JSON.
        raw_response: The engine's own bytes; the same object as `response` if those are strict.
        tail: JSON text after `response`.
    """

    head: bytes
    response: SplicedText
    raw_response: SplicedText
    tail: bytes

    @property
    def blobs(self) -> list[ReplayBlob]:
        """Every replay blob of the record."""
        if self.raw_response is self.response:
            return self.response.blobs
        return [*self.response.blobs, *self.raw_response.blobs]

    def pieces(self, *, raw: bool) -> Iterator[memoryview]:
        """The record's JSON text, shared and not copied."""
        yield memoryview(self.head)
        yield from (self.raw_response if raw else self.response).pieces()
        yield memoryview(self.tail)


def make_record(
    *,
    facts: JsonObject,
    request: bytes,
    status: int,
    raw: bytes,
    strict: bytes,
    blobs: Iterable[str],
    keep: Callable[[memoryview], ReplayBlob],
) -> Record:
    """Render a record.

    Args:
        facts: The first members (time stamps in seconds, method, path).
        request: The body that the engine got, JSON.
        status: The engine's status.
        raw: The body that it answered.
        strict: The same as strict JSON; `raw` itself if it is.
        blobs: Texts of its replay fields.
        keep: Stores one blob.

    Returns:
        The record; nothing else was changed.
    """
    wanted = list(blobs)
    response = cut_blobs(strict, wanted, keep)
    # Seldom: the blobs of a reply with NaN are stored twice.
    raw_response = response if raw is strict else cut_blobs(raw, wanted, keep)
    return Record(
        head=render_json(facts)[:-1] + b',"request":' + request + b',"response":',
        response=response,
        raw_response=raw_response,
        tail=b',"status_code":%d}' % status,
    )


def session_pieces(
    session_id: str, records: Iterable[Record], metadata: JsonObject, *, raw: bool
) -> list[memoryview]:
    """The reply to a read of a session, as the pieces of one JSON text.

    Args:
        session_id: The id.
        records: Its records, oldest first.
        metadata: What the session says of itself.
        raw: Give the engine's own bytes where they are no strict JSON.

    Returns:
        Pieces in order, none empty; they stay readable when the session is deleted meanwhile.
    """
    pieces = [memoryview(render_json({"session_id": session_id})[:-1] + b',"records":[')]
    comma = memoryview(b",")
    for index, record in enumerate(records):
        pieces += chain([comma] if index else [], record.pieces(raw=raw))
    pieces.append(memoryview(b'],"metadata":' + render_json(metadata) + b"}"))
    return [piece for piece in pieces if len(piece)]
