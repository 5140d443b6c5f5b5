"""Which rows make the tensor, and every reason why there is none."""

from __future__ import annotations

import numpy as np
import pytest

from sessions.core.engine_replies.turn_facts import TurnFacts
from sessions.core.samples.replay_rows import DecodedRows
from sessions.core.samples.replay_tensor import ReplayTensor, check_replay, replay_tensor_of
from sessions.errors.samples import ReplayGapError, ReplayMismatchError
from sessions.replay.taken import InlineBlob
from tests.support.samples import blob_of, npy_of, rows_for, turn_of, whole_of

ROUTED = "routed_experts"
INDEXER = "indexer_topk"


def facts(count: int, blob: InlineBlob | None, *, start: int = 0, layers: int = 0) -> TurnFacts:
    """A turn of so many tokens, one of them sampled."""
    replay = [] if blob is None else [(ROUTED, blob)]
    turn = turn_of([0] * (count - 1), [1], replay=replay, starts={ROUTED: start}, layers=layers)
    return turn.facts


def patch(first: int, last: int, *, topk: int = 2) -> InlineBlob:
    return blob_of(rows_for(last - first, 3, topk, start=first).tobytes())


def array_of(tensor: ReplayTensor | None) -> np.ndarray:
    assert tensor is not None
    data = whole_of(map(DecodedRows, tensor.patches))
    return np.frombuffer(data, "<i4").reshape(tensor.dimensions)


def test_a_turn_without_data_has_no_tensor():
    assert replay_tensor_of([facts(4, None)], ROUTED, rows=3) is None


@pytest.mark.parametrize(("layers", "shape"), [(0, (5, 6)), (3, (5, 3, 2)), (1, (5, 1, 6))])
def test_bare_rows_have_the_layers_of_the_settings(layers: int, shape: tuple[int, ...]):
    tensor = replay_tensor_of([facts(6, patch(0, 5), layers=layers)], ROUTED, rows=5)
    assert array_of(tensor).tolist() == rows_for(5, 3, 2).reshape(shape).tolist()


def test_an_npy_file_brings_its_own_shape():
    rows = rows_for(5, 3, 2).astype("u1")
    tensor = replay_tensor_of([facts(6, blob_of(npy_of(rows)))], ROUTED, rows=4)
    assert array_of(tensor).tolist() == rows[:4].tolist()


def test_the_last_turn_counts_when_it_has_all_rows():
    turns = [facts(4, patch(0, 3)), facts(8, patch(0, 7, topk=4))]
    tensor = replay_tensor_of(turns, ROUTED, rows=7)
    assert array_of(tensor).tolist() == rows_for(7, 3, 4).reshape(7, 12).tolist()


@pytest.mark.parametrize("rows", [9, 8, 7, 6, 5, 3, 1, 0])
def test_patches_are_joined_and_cut(rows: int):
    turns = [
        facts(4, patch(0, 3)),
        facts(6, patch(3, 5), start=3),
        facts(10, patch(5, 9), start=5),
    ]
    tensor = replay_tensor_of(turns, ROUTED, rows=rows)
    assert array_of(tensor).tolist() == rows_for(rows, 3, 2).reshape(rows, 6).tolist()


def test_patches_begin_at_the_last_turn_that_has_all_rows():
    turns = [
        facts(4, patch(0, 3, topk=4)),
        facts(6, patch(0, 5)),
        facts(10, patch(5, 9), start=5),
    ]
    tensor = replay_tensor_of(turns, ROUTED, rows=9)
    assert array_of(tensor).tolist() == rows_for(9, 3, 2).reshape(9, 6).tolist()


@pytest.mark.parametrize("empty", [None, blob_of(b"")])
def test_a_patch_without_rows_is_passed_over(empty: InlineBlob | None):
    turns = [facts(4, patch(0, 3)), facts(4, empty, start=3), facts(6, patch(3, 5), start=3)]
    assert not turns[1].replay_error
    tensor = replay_tensor_of(turns, ROUTED, rows=5)
    assert array_of(tensor).tolist() == rows_for(5, 3, 2).reshape(5, 6).tolist()


def test_no_row_at_all_is_no_null():
    turn = turn_of([], [1], replay=[(ROUTED, blob_of(b""))])
    assert array_of(replay_tensor_of([turn.facts], ROUTED, rows=0)).shape == (0, 0)


def test_an_npy_file_without_rows_keeps_its_shape():
    blob = blob_of(npy_of(np.zeros((0, 3, 2), "u1")))
    turn = turn_of([], [1], replay=[(ROUTED, blob)])
    assert array_of(replay_tensor_of([turn.facts], ROUTED, rows=0)).shape == (0, 3, 2)


@pytest.mark.parametrize(
    ("turns", "told"),
    [
        ([facts(6, patch(3, 5), start=3)], "turn 1 begins at row 3 instead of 0"),
        (
            [facts(4, None), facts(6, patch(3, 5), start=3)],
            "turn 1 is missing, and turn 2 continues it",
        ),
        (
            [facts(4, patch(0, 3)), facts(6, patch(4, 5), start=4)],
            "turn 1 ends before row 3, and that of turn 2 begins at row 4",
        ),
        (
            [facts(4, patch(0, 3)), facts(6, patch(2, 5), start=2)],
            "turn 1 ends before row 3, and that of turn 2 begins at row 2",
        ),
    ],
)
def test_patches_that_do_not_join_are_a_gap(turns: list[TurnFacts], told: str):
    with pytest.raises(ReplayGapError, match=told) as caught:
        replay_tensor_of(turns, ROUTED, rows=5)
    assert caught.value.status == 422


def test_patches_of_different_widths_are_a_mismatch():
    turns = [facts(4, patch(0, 3)), facts(6, patch(3, 5, topk=4), start=3)]
    with pytest.raises(ReplayMismatchError, match="turn 2 has rows of the shape"):
        replay_tensor_of(turns, ROUTED, rows=5)


def test_the_indexer_has_a_tensor_of_its_own():
    both = [(INDEXER, patch(0, 5)), (ROUTED, patch(0, 5))]
    turn = turn_of([0] * 5, [1], replay=both, indexer_topk_num_layers=3)
    tensor = replay_tensor_of([turn.facts], INDEXER, rows=5)
    assert array_of(tensor).tolist() == rows_for(5, 3, 2).tolist()


def test_a_flagged_turn_is_named():
    turns = [facts(6, patch(0, 5)), facts(8, patch(0, 5)), facts(9, patch(0, 8))]
    with pytest.raises(ReplayMismatchError, match="of turn 2 is unusable: routed_experts: 120"):
        check_replay(turns)
    check_replay(turns[:1])
