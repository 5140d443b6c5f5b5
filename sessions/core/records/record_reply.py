"""The reply to a read of a session: parts, tag, conditions and ranges put together.

The tag stands for the very bytes: a record never changes, so the tags of the chosen records, what
of them is wanted and the metadata say all. A range of an old reply is therefore never glued to a
newer one.

Must not know how sessions are found.

Spec: docs/sessions.md#ranges
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from contextlib import ExitStack
from http import HTTPStatus
from typing import Final

from starlette.responses import Response

from sessions.core.http_exchange.client_request import ClientRequest
from sessions.core.http_exchange.replies import JSON_TYPE, reply_of
from sessions.core.records.byte_range import Answer, select
from sessions.core.records.record import Record, session_parts
from sessions.core.records.record_query import RecordQuery
from sessions.core.records.record_stream import RecordStream, pieces_of
from sessions.core.records.turnstile import Turnstile
from sessions.core.texts.json_text import JsonObject, render_json
from sessions.replay.splice import size_of

_ACCEPT_RANGES: Final = (b"accept-ranges", b"bytes")
_DIGEST_BYTES: Final = 16


async def records_reply_of(
    session_id: str,
    records: Sequence[Record],
    metadata: JsonObject | None,
    *,
    query: RecordQuery,
    request: ClientRequest,
    pins: ExitStack,
    turnstile: Turnstile,
) -> Response:
    """Make the reply; its first piece is read.

    Args:
        session_id: The session's id.
        records: The chosen records.
        metadata: What the session says of itself; None to leave it out.
        query: What is wanted.
        request: Its conditions and its range count.
        pins: Of the blobs that `Record.blobs_for` names; the reply takes them over unless this
            raises.
        turnstile: Of all long replies of the process.

    Raises:
        PreconditionFailedError: See `byte_range.select`.
        RangeNotSatisfiableError: Likewise.
        ReplayStoreError: The disk failed.
    """
    told = None if metadata is None else render_json(metadata)
    etag = etag_of(session_id, records, told, query)
    parts = list(session_parts(session_id, records, told, query))
    size_bytes = sum(map(size_of, parts))
    found = select(request.headers, etag=etag, size_bytes=size_bytes, is_head=request.is_head)
    tag = (b"etag", etag)
    if found.answer is Answer.UNCHANGED:
        pins.close()
        return reply_of(HTTPStatus.NOT_MODIFIED, [tag])
    headers = [JSON_TYPE, _ACCEPT_RANGES, tag]
    status = HTTPStatus.OK
    if found.answer is Answer.PART:
        status = HTTPStatus.PARTIAL_CONTENT
        place = b"bytes %d-%d/%d" % (found.start, found.stop - 1, size_bytes)
        headers.append((b"content-range", place))
    pieces = pieces_of(parts, found.start, found.stop)
    size = found.stop - found.start
    reply = RecordStream(status, headers, pieces, size, pins.pop_all(), turnstile=turnstile)
    if not request.is_head:
        await reply.begin()
    return reply


def etag_of(
    session_id: str, records: Sequence[Record], metadata: bytes | None, query: RecordQuery
) -> bytes:
    """A strong tag of a reply, with its quotes: equal only for equal bytes."""
    members = None if query.members is None else sorted(query.members)
    shown = [
        len(records),
        members,
        query.has_records,
        query.has_replay,
        query.is_raw,
        metadata is None,
    ]
    digest = hashlib.blake2b(render_json([session_id, shown]), digest_size=_DIGEST_BYTES)
    for record in records:
        digest.update(record.tag)
    digest.update(metadata or b"")
    return b'"%s"' % digest.hexdigest().encode()
