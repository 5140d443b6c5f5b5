"""The reply to a request for samples: assembled in a thread, then sent piece by piece.

All that can be refused is refused before the first byte: the thread gives the whole header and
every tensor but the rows of replay data, which are decoded while they are sent.

Must not know how sessions are found.

Spec: docs/samples.md#reply
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Sequence
from contextlib import ExitStack
from http import HTTPStatus
from typing import Final

from starlette.responses import Response

from sessions.core.json_text import JsonObject
from sessions.core.record_stream import RecordStream, pieces_of
from sessions.core.samples.assembly import SampleRules, TurnSample, assemble
from sessions.core.samples.layout import parts_of
from sessions.core.samples.samples_request import SamplesRequest
from sessions.core.samples.tensors import tensors_of
from sessions.core.turnstile import Turnstile
from sessions.replay.blobs import ReplayBlob
from sessions.replay.splice import size_of
from sessions.tokens.prompts import PromptBuilder

_BLOB_TYPE: Final = (b"content-type", b"application/octet-stream")


def blobs_in(turns: Iterable[TurnSample]) -> list[ReplayBlob]:
    """The replay blobs that a reply may read."""
    rows = [rows for turn in turns for rows in turn.facts.replay.values()]
    return [row.source for row in rows if row.source is not None]


async def samples_reply_of(
    turns: Sequence[TurnSample],
    metadata: JsonObject,
    wanted: SamplesRequest,
    *,
    prompts: PromptBuilder,
    pins: ExitStack,
    turnstile: Turnstile,
) -> Response:
    """Make the reply; its first piece is there.

    Args:
        turns: A session's recorded turns, oldest first; shared, not changed.
        metadata: What the session says of itself.
        wanted: What the client wants.
        prompts: Of the tokenizer and family of the session.
        pins: Of the blobs that `blobs_in` names; the reply takes them over unless this raises.
        turnstile: Of all long replies of the process.

    Raises:
        UnprocessableError: No sample can be made; see `assemble`.
        ReplayStoreError: The disk failed.
    """
    limit, family = wanted.max_seq_len, prompts.family
    rules = SampleRules(max_trim_count=family.max_trim_count, max_seq_len=limit)
    parts = await asyncio.to_thread(
        lambda: parts_of(tensors_of(assemble(turns, rules, prompts.tokenizer.decode), metadata))
    )
    size_bytes = sum(map(size_of, parts))
    pieces = pieces_of(parts, 0, size_bytes)
    reply = RecordStream(
        HTTPStatus.OK, [_BLOB_TYPE], pieces, size_bytes, pins=pins.pop_all(), turnstile=turnstile
    )
    await reply.begin()
    return reply
