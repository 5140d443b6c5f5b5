"""A reply that was taken apart, read: its value, and where its replay blobs belong.

The small text is parsed in place of the whole reply. That is sound if each placeholder is found
once, as the value of its own field; then the value without replay fields is the one that the whole
reply would have given. If not (of two equal keys only the last counts, say), the reply is put
together again and parsed as a whole. Its text stays in parts either way, since putting blobs back
where they were cut gives the same bytes whatever they mean. The prompt's ids are cut out likewise
(`prompt_echo.py`).

Must not know what a reply's other fields mean.

Spec: docs/replay.md#placeholders
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass

from sessions.core.engine_replies.prompt_echo import cut_echo
from sessions.core.engine_replies.replay_fields import take_replay_fields
from sessions.core.texts.json_text import Json, parse_engine_json, render_json
from sessions.core.texts.shared_text import IdsText
from sessions.replay.blobs import ReplayBlob
from sessions.replay.splice import SplicedText
from sessions.replay.taken import InlineBlob, TakenBlob, TakenText, parts_of


@dataclass(frozen=True, slots=True, kw_only=True)
class TakenReply:
    """A reply, read.

    Attributes:
        value: The parsed reply without replay fields; numbers that are not finite as None. Where
            the prompt's ids stood as they were sent, `SENT_IDS` is.
        is_strict: Whether the engine's bytes are JSON for a strict reader.
        replay: (field, blob) for each replay field that was a string, in the order found: choices
            before `sglext`, the first choice first. A short one, or one of a reply that was put
            together again, is held in memory and is no blob of the store.
        raw: The engine's own bytes, stored blobs in their places.
        strict: The reply as strict JSON; the same object as `raw` if that is.
    """

    value: Json
    is_strict: bool
    replay: tuple[tuple[str, ReplayBlob], ...]
    raw: SplicedText
    strict: SplicedText


async def read_taken(taken: TakenText, prompt: IdsText) -> TakenReply:
    """Read a reply that was taken apart.

    Args:
        taken: The reply.
        prompt: The ids that were sent.

    Returns:
        What it says. Parsing is done here, only reading blobs back leaves the loop.

    Raises:
        ValueError: The reply is not UTF-8, not JSON, or nested too deeply to be read.
        RecursionError: It is nested too deeply to be written again.
        ReplayStoreError: A blob could not be read back.
    """
    cut = cut_echo(taken.text, prompt)
    value, is_strict = parse_engine_json(cut.text)
    strict = None if is_strict else render_json(value)
    replay = match_placeholders(take_replay_fields(value), taken.blobs)
    strict_blobs = taken.blobs
    if replay is None or not cut.replace_marks(value):
        value, is_strict = parse_engine_json(await asyncio.to_thread(taken.restore))
        strict, strict_blobs = None if is_strict else render_json(value), ()
        replay = match_placeholders(take_replay_fields(value), ()) or []
    raw = SplicedText(parts=cut.filled(parts_of(cut.text, taken.blobs)))
    return TakenReply(
        value=value,
        is_strict=is_strict,
        replay=tuple(replay),
        raw=raw,
        strict=raw
        if strict is None
        else SplicedText(parts=cut.filled(parts_of(strict, strict_blobs))),
    )


def match_placeholders(
    fields: Sequence[tuple[str, str]], blobs: Sequence[TakenBlob]
) -> list[tuple[str, ReplayBlob]] | None:
    """Put blobs in the places of their placeholders.

    Args:
        fields: (field, text) as found in the parsed text.
        blobs: What was cut out of it.

    Returns:
        (field, blob) in the order of `fields`, texts that are no placeholders as blobs in memory.
        None unless each placeholder is there once, as the text of its own field.
    """
    awaited = {blob.placeholder: blob for blob in blobs}
    seen: set[str] = set()
    replay: list[tuple[str, ReplayBlob]] = []
    for field, text in fields:
        blob = awaited.get(text)
        if blob is None:
            replay.append((field, InlineBlob(text.encode("utf-8", "surrogatepass"))))
        elif blob.field != field or text in seen:
            return None
        else:
            seen.add(text)
            replay.append((field, blob.blob))
    return replay if len(seen) == len(awaited) else None
