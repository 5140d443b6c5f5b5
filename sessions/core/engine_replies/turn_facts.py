"""What is kept of a committed turn for training samples, so that no record is parsed again.

The tokens themselves stand in the turn's checkpoint. `facts_of` takes the rest from the engine's
reply: it never fails, because the turn is recorded whatever its replay data is; what is wrong
there is named and kept, and a request for samples is refused with it.

Must not know sessions or how samples are made.

Spec: docs/samples.md#turn-facts
"""

from __future__ import annotations

from array import array
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Final

from sessions.core.engine_replies.sampled import Sampled
from sessions.replay.base64_check import Base64Check
from sessions.replay.blobs import ReplayBlob
from sessions.replay.scanner import REPLAY_FIELDS
from sessions.replay.shape import NUMBER_BYTES, BlobShape, check_shape, describe, row_bytes_of
from sessions.replay.taken import InlineBlob

ROUTED_EXPERTS: Final = "routed_experts"
_NO_STARTS: Final[Mapping[str, int]] = MappingProxyType({})


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplayRows:
    """One replay field of a turn.

    Attributes:
        source: The base64 text; None when no row was due.
        start_row: The first row; the engine was asked for none before it.
        row_count: The rows that were due.
        shape: What the text says of itself.
        row_shape: The shape of one row; (numbers,) if its layers are not known.
    """

    source: ReplayBlob | None
    start_row: int
    row_count: int
    shape: BlobShape
    row_shape: tuple[int, ...] = (0,)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class TurnFacts:
    """One committed turn.

    Attributes:
        prompt_count: Tokens of its prompt; the first ones of the checkpoint's tokens.
        log_probs: One per sampled token, doubles; NaN where the engine gave no finite number.
        finish_reason: The engine's word, "" if there was none.
        weight_version: Of the model, "" if the engine did not say.
        cached_count: Prompt tokens that the engine had cached.
        engine_prompt_count: Prompt tokens as the engine counts them.
        latency_s: Seconds that the engine took, None if it did not say.
        requested_at: When the client's request was there, seconds since the epoch.
        committed_at: When the turn was committed, likewise.
        replay: Replay data by field; a field that the engine did not send is absent.
        replay_error: What is wrong with the replay data, in words that begin with the field's
            name; empty if nothing is.
    """

    prompt_count: int
    log_probs: array[float]
    finish_reason: str = ""
    weight_version: str = ""
    cached_count: int = 0
    engine_prompt_count: int = 0
    latency_s: float | None = None
    requested_at: float = 0.0
    committed_at: float = 0.0
    replay: Mapping[str, ReplayRows] = field(default_factory=dict)
    replay_error: str = ""


def blobs_of(facts: TurnFacts) -> dict[str, ReplayBlob]:
    """The replay blobs of a turn by field."""
    return {field: rows.source for field, rows in facts.replay.items() if rows.source is not None}


def facts_of(
    sampled: Sampled,
    *,
    prompt_count: int,
    requested_at: float,
    committed_at: float,
    replay: Sequence[tuple[str, ReplayBlob]],
    starts: Mapping[str, int] = _NO_STARTS,
    layers: int = 0,
    before: TurnFacts | None = None,
) -> TurnFacts:
    """Take the facts from a reply.

    Args:
        sampled: The engine's reply, read and checked.
        prompt_count: Token ids that were sent.
        requested_at: When the client's request was there, seconds since the epoch.
        committed_at: Now.
        replay: (field, base64 text) as found in it; the first of a field counts.
        starts: The first row that the engine was asked for, by field; absent for all rows.
        layers: Layers of routed experts by the settings, 0 if unknown.
        before: Facts of the checkpoint that the turn builds on.

    Returns:
        The facts; never raises for what an engine sends.
    """
    rows, errors = _replay_of(
        dict(reversed(replay)),
        starts=starts,
        end_row=max(0, prompt_count + len(sampled.token_ids) - 1),
        layers={**sampled.row_layers, ROUTED_EXPERTS: layers},
        before=before,
    )
    return TurnFacts(
        prompt_count=prompt_count,
        log_probs=sampled.log_probs,
        finish_reason=sampled.finish_reason,
        weight_version=sampled.weight_version,
        cached_count=sampled.cached_count,
        engine_prompt_count=sampled.prompt_count,
        latency_s=sampled.latency_s,
        requested_at=requested_at,
        committed_at=committed_at,
        replay=rows,
        replay_error="; ".join(errors),
    )


def _replay_of(
    sources: Mapping[str, ReplayBlob],
    *,
    starts: Mapping[str, int],
    end_row: int,
    layers: Mapping[str, int],
    before: TurnFacts | None,
) -> tuple[dict[str, ReplayRows], list[str]]:
    """The rows of each field that is there, and what is wrong."""
    # What was wrong before says nothing of the width of a row.
    known = before.replay if before is not None and not before.replay_error else {}
    rows: dict[str, ReplayRows] = {}
    errors: list[str] = []
    for name in REPLAY_FIELDS:
        found, error = _rows_of(
            sources.get(name),
            start_row=starts.get(name, 0),
            end_row=end_row,
            layers=layers.get(name),
            before=known.get(name),
        )
        if found is not None:
            rows[name] = found
        if error:
            errors.append(f"{name}: {error}")
    return rows, errors


def _rows_of(
    source: ReplayBlob | None,
    *,
    start_row: int,
    end_row: int,
    layers: int | None,
    before: ReplayRows | None,
) -> tuple[ReplayRows | None, str]:
    """One field's rows, and what is wrong with them.

    The layers of a bare row are 0 if they may stay unknown, None if they may not.
    """
    due = max(0, end_row - start_row)
    if source is None:
        if not start_row:
            # Not asked for, or the engine has none: then there is none from the start.
            return None, ""
        none = BlobShape(data_bytes=0)
        rows = ReplayRows(source=None, start_row=start_row, row_count=due, shape=none)
        return rows, f"the engine sent no rows from {start_row} to {end_row}" if due else ""
    shape = describe(source.head, source.tail, source.size_bytes)
    width = row_bytes_of(before.shape, before.row_count) if before is not None else 0
    error = _flaw_in_memory(source) or check_shape(shape, rows=due, width_bytes=width or None) or ""
    row_shape: tuple[int, ...] = (0,)
    if not error:
        row_shape, error = _row_shape_of(shape, due, layers)
    rows = ReplayRows(
        source=source, start_row=start_row, row_count=due, shape=shape, row_shape=row_shape
    )
    return rows, error


def _flaw_in_memory(source: ReplayBlob) -> str:
    """The store takes nothing but base64; a text that stayed in memory was never checked."""
    if not isinstance(source, InlineBlob):
        return ""
    check = Base64Check()
    check.feed(memoryview(source.read(0, source.size_bytes)))
    return "" if check.finish() else "it is no base64 text"


def _row_shape_of(shape: BlobShape, rows: int, layers: int | None) -> tuple[tuple[int, ...], str]:
    if shape.dimensions is not None:
        return shape.dimensions[1:], ""
    width = row_bytes_of(shape, rows) // NUMBER_BYTES[shape.number_type]
    if layers is None:
        return (width,), "the engine did not say how many layers a row has"
    if layers and width % layers:
        return (width,), f"a row has {width} numbers, which are not {layers} layers"
    return ((layers, width // layers) if layers else (width,)), ""
