"""Which stored rows make a sample's replay tensor, decided before any is read.

A turn's data is either the rows of all its tokens, or, where the engine was asked for new rows
only, a patch that continues the turn before. The tensor is the last turn's rows, or the patches
from the first row on, cut to as many rows as the sample needs.

Must not know how rows are decoded or sent.

Spec: docs/samples.md#replay-rows
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from sessions.core.engine_replies.turn_facts import ReplayRows, TurnFacts
from sessions.errors.samples import ReplayGapError, ReplayMismatchError
from sessions.replay.blobs import ReplayBlob
from sessions.replay.shape import row_bytes_of


@dataclass(frozen=True, slots=True, kw_only=True)
class RowPatch:
    """Rows within one base64 text.

    Attributes:
        source: The text.
        start: First decoded byte that is wanted.
        stop: The one after the last.
        number_type: Of its numbers, as NumPy writes it.
    """

    source: ReplayBlob
    start: int
    stop: int
    number_type: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplayTensor:
    """One tensor of int32.

    Attributes:
        dimensions: Its shape, rows first.
        patches: Where its rows stand, in order.
    """

    dimensions: tuple[int, ...]
    patches: tuple[RowPatch, ...]


def check_replay(turns: Sequence[TurnFacts]) -> None:
    """Refuse turns whose replay data was found wrong when they were recorded.

    Raises:
        ReplayMismatchError: There is one; the message names it.
    """
    for number, facts in enumerate(turns, 1):
        if facts.replay_error:
            raise ReplayMismatchError(
                f"the replay data of turn {number} is unusable: {facts.replay_error}"
            )


def replay_tensor_of(turns: Sequence[TurnFacts], field: str, *, rows: int) -> ReplayTensor | None:
    """Find the rows of one field.

    Args:
        turns: The joined turns from the first on; `check_replay` found nothing.
        field: The field's name.
        rows: Rows that the sample needs; the last turn has as many or more.

    Returns:
        The tensor; None if the last turn has no such data.

    Raises:
        ReplayGapError: The patches do not join.
        ReplayMismatchError: They are of different shapes.
    """
    if field not in turns[-1].replay:
        return None
    chain = _chain_of(turns, field)
    trailing: tuple[int, ...] | None = None
    patches = []
    for number, patch in chain:
        if patch.source is None or not (patch.row_count or patch.shape.dimensions):
            continue
        if trailing not in (None, patch.row_shape):
            raise ReplayMismatchError(
                f"{field} of turn {number} has rows of the shape {patch.row_shape}, those before"
                f" it {trailing}"
            )
        trailing = patch.row_shape
        wanted = max(0, min(patch.row_count, rows - patch.start_row))
        start = patch.shape.header_bytes
        stop = start + wanted * row_bytes_of(patch.shape, patch.row_count)
        if stop > start:
            kind = patch.shape.number_type
            patches.append(RowPatch(source=patch.source, start=start, stop=stop, number_type=kind))
    return ReplayTensor(dimensions=(rows, *(trailing or (0,))), patches=tuple(patches))


def _chain_of(turns: Sequence[TurnFacts], field: str) -> list[tuple[int, ReplayRows]]:
    """(number of the turn, its rows) from row 0 on; often the last turn alone."""
    chain: list[tuple[int, ReplayRows]] = []
    for number in range(len(turns), 0, -1):
        rows = turns[number - 1].replay.get(field)
        if rows is None:
            raise ReplayGapError(
                f"{field} of turn {number} is missing, and turn {number + 1} continues it"
            )
        if chain and rows.start_row + rows.row_count != chain[-1][1].start_row:
            raise ReplayGapError(
                f"{field} of turn {number} ends before row {rows.start_row + rows.row_count}, and"
                f" that of turn {number + 1} begins at row {chain[-1][1].start_row}"
            )
        chain.append((number, rows))
        if not rows.start_row:
            return chain[::-1]
    raise ReplayGapError(f"{field} of turn 1 begins at row {chain[-1][1].start_row} instead of 0")
