"""Records: what was sent to the engine and what it answered, one per committed turn.

Everything is rendered when the turn commits: a record is JSON texts with its replay blobs stored
apart, so reading a session puts texts in a row and cannot fail. The engine's own bytes are kept
when they are no JSON for a strict reader (`NaN`); a client gets null there unless it asks for the
raw text.

Must not know trajectories or HTTP.

Spec: docs/sessions.md#records
"""

from __future__ import annotations

import secrets
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from itertools import chain
from typing import Final

from sessions.core.engine_replies.taken_reply import TakenReply
from sessions.core.records.record_query import RecordQuery
from sessions.core.texts.json_text import JsonObject, render_json
from sessions.replay.blobs import ReplayBlob
from sessions.replay.splice import Part, SplicedText

_TAG_BYTES: Final = 12


def _new_tag() -> bytes:
    return secrets.token_bytes(_TAG_BYTES)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Record:
    """One committed turn.

    Attributes:
        facts: JSON texts of the small members, by name and in order.
        request: The body that the engine got, JSON in parts; records share them.
        response: The engine's reply as strict JSON.
        raw_response: The engine's own bytes; the same object as `response` if those are strict.
        status: The engine's status.
        tag: Random; the same record is the same text for ever, another one has another tag.
    """

    facts: Mapping[str, bytes]
    request: tuple[bytes, ...]
    response: SplicedText
    raw_response: SplicedText
    status: int
    tag: bytes = field(default_factory=_new_tag)

    @property
    def blobs(self) -> list[ReplayBlob]:
        """Every replay blob of the record."""
        if self.raw_response is self.response:
            return self.response.blobs
        return [*self.response.blobs, *self.raw_response.blobs]

    def blobs_for(self, query: RecordQuery) -> list[ReplayBlob]:
        """The replay blobs that a read gives."""
        if not (query.has_replay and query.wants("response")):
            return []
        return self._response_for(query).blobs

    def parts(self, query: RecordQuery) -> Iterator[Part]:
        """The record's JSON text, shared and not copied; `{}` if no member of it is wanted."""
        opening = b'{"'
        for name, parts in self._members(query):
            if query.wants(name):
                yield opening + name.encode() + b'":'
                yield from parts
                opening = b',"'
        yield b"}" if opening == b',"' else b"{}"

    def _members(self, query: RecordQuery) -> Iterator[tuple[str, Iterable[Part]]]:
        for name, text in self.facts.items():
            yield name, (text,)
        yield "request", self.request
        response = self._response_for(query)
        yield "response", response.parts if query.has_replay else response.with_nulls()
        yield "status_code", (b"%d" % self.status,)

    def _response_for(self, query: RecordQuery) -> SplicedText:
        return self.raw_response if query.is_raw else self.response


def make_record(
    *, facts: JsonObject, request: tuple[bytes, ...], status: int, reply: TakenReply
) -> Record:
    """Render a record.

    Args:
        facts: The first members (time stamps in seconds, method, path).
        request: The body that the engine got, JSON in parts.
        status: The engine's status.
        reply: The body that it answered.

    Returns:
        The record; nothing else was changed.
    """
    return Record(
        facts=render_facts(facts),
        request=request,
        response=reply.strict,
        raw_response=reply.raw,
        status=status,
    )


def render_facts(facts: JsonObject) -> dict[str, bytes]:
    """The small members of a record as JSON texts, in order."""
    # Copied, since they are kept: a text as orjson gives it takes 4 KiB, however short it is
    # (measured, 3.13).
    return {name: bytes(memoryview(render_json(value))) for name, value in facts.items()}


def session_parts(
    session_id: str, records: Iterable[Record], metadata: bytes | None, query: RecordQuery
) -> Iterator[Part]:
    """The reply to a read of a session, as the parts of one JSON text.

    Args:
        session_id: The id.
        records: The chosen records, oldest first.
        metadata: What the session says of itself, JSON; None to leave it out.
        query: What is wanted.

    Yields:
        Parts in order, none empty; stored blobs are those of `Record.blobs_for`.
    """
    yield render_json({"session_id": session_id})[:-1]
    if query.has_records:
        yield b',"records":['
        for index, record in enumerate(records):
            yield from chain([b","] if index else [], record.parts(query))
        yield b"]"
    if metadata is not None:
        yield b',"metadata":' + metadata
    yield b"}"
