"""What is kept of a turn, whatever the engine says."""

from __future__ import annotations

import math
from typing import Any

import pytest

from sessions.core.engine_replies.turn_facts import TurnFacts, facts_of
from sessions.replay.blobs import ReplayBlob
from sessions.replay.taken import InlineBlob
from tests.support.samples import blob_of, npy_of, reply_of, rows_for, sampled_of

ROUTED = "routed_experts"
INDEXER = "indexer_topk"


def facts(
    *replay: tuple[str, ReplayBlob],
    prompt_count: int = 4,
    start: int = 0,
    layers: int = 0,
    before: TurnFacts | None = None,
    reply: dict[str, Any] | None = None,
) -> TurnFacts:
    """Facts of a turn that sampled two tokens."""
    return facts_of(
        sampled_of(reply or reply_of([10, 11], [-0.5, -1]), range(prompt_count)),
        prompt_count=prompt_count,
        requested_at=100.0,
        committed_at=101.5,
        replay=replay,
        starts={ROUTED: start},
        layers=layers,
        before=before,
    )


def bare(rows: int, row_bytes: int = 24) -> ReplayBlob:
    return blob_of(bytes(rows * row_bytes))


def test_everything_that_sglang_tells_is_kept():
    found = facts(
        reply=reply_of(
            [10, 11],
            [-0.5, -1],
            weight_version="v7",
            cached_tokens=3,
            prompt_tokens=4,
            e2e_latency=0.25,
        )
    )
    assert found.log_probs.tolist() == [-0.5, -1.0]
    assert (found.prompt_count, found.finish_reason, found.weight_version) == (4, "stop", "v7")
    assert (found.cached_count, found.engine_prompt_count, found.latency_s) == (3, 4, 0.25)
    assert (found.requested_at, found.committed_at) == (100.0, 101.5)
    assert (found.replay, found.replay_error) == ({}, "")


def test_what_is_told_elsewhere_is_found():
    reply = reply_of([1], [0.0], finish_reason=None)
    reply["choices"][0]["meta_info"]["finish_reason"] = {"type": "length", "length": 1}
    reply["metadata"] = {"weight_version": "v2"}
    reply["usage"] = {"prompt_tokens": 4, "prompt_tokens_details": {"cached_tokens": 8}}
    found = facts(reply=reply)
    assert (found.finish_reason, found.weight_version) == ("length", "v2")
    assert (found.cached_count, found.engine_prompt_count) == (8, 4)


@pytest.mark.parametrize("odd", [None, True, -1, "x", [], {}, 1e300, 1 << 70])
def test_odd_values_are_none(odd: object):
    reply = reply_of([1], [0.0], finish_reason=None)
    names: tuple[str, ...] = (
        "weight_version",
        "cached_tokens",
        "prompt_tokens",
        "e2e_latency",
        "finish_reason",
    )
    if odd == "x":
        names = names[1:4]
    reply["choices"][0]["meta_info"] |= dict.fromkeys(names, odd)
    reply |= dict.fromkeys(("usage", "metadata"), odd)
    reply["choices"][0]["meta_info"]["output_token_logprobs"][0][0] = odd if odd != -1 else None
    found = facts(reply=reply)
    assert (found.weight_version, found.cached_count, found.engine_prompt_count) == ("", 0, 0)
    assert found.latency_s is None
    assert found.finish_reason == ""
    assert math.isnan(found.log_probs[0])


def test_the_first_data_of_a_field_count():
    first, second, other = bare(5), bare(5), bare(5)
    found = facts((ROUTED, first), (ROUTED, second), (INDEXER, other))
    assert found.replay[ROUTED].source is first
    assert found.replay[INDEXER].source is other


@pytest.mark.parametrize(("layers", "row_shape"), [(0, (6,)), (3, (3, 2)), (6, (6, 1))])
def test_bare_rows_have_the_layers_of_the_settings(layers: int, row_shape: tuple[int, ...]):
    found = facts((ROUTED, bare(5)), layers=layers)
    assert found.replay_error == ""
    rows = found.replay[ROUTED]
    assert (rows.start_row, rows.row_count, rows.row_shape) == (0, 5, row_shape)


def test_an_npy_file_has_its_own_shape():
    found = facts((ROUTED, blob_of(npy_of(rows_for(5, 3, 2).astype("<u2")))), layers=7)
    assert (found.replay_error, found.replay[ROUTED].row_shape) == ("", (3, 2))


def test_the_indexer_has_the_layers_that_the_engine_tells():
    reply = reply_of([10, 11], [0, 0], indexer_topk_num_layers=2)
    found = facts((INDEXER, bare(5)), reply=reply, layers=6)
    assert (found.replay_error, found.replay[INDEXER].row_shape) == ("", (2, 3))


def test_a_patch_has_the_rows_from_its_start_on():
    found = facts((ROUTED, bare(2)), start=3)
    assert found.replay_error == ""
    assert (found.replay[ROUTED].start_row, found.replay[ROUTED].row_count) == (3, 2)


def test_no_row_due_is_no_fault_of_a_patch():
    found = facts(start=5)
    assert found.replay_error == ""
    assert found.replay[ROUTED].source is None


def test_the_first_turn_of_one_token_has_no_rows():
    found = facts((ROUTED, blob_of(b"")), prompt_count=0, reply=reply_of([1], [0]))
    assert (found.replay_error, found.replay[ROUTED].row_count) == ("", 0)


@pytest.mark.parametrize(
    ("found", "told"),
    [
        (facts((ROUTED, bare(1, 26))), "routed_experts: 26 bytes are not 5 rows of int32"),
        (
            facts((ROUTED, blob_of(npy_of(rows_for(4, 3, 2))))),
            "routed_experts: the shape 4x3x2 is not 5 rows",
        ),
        (facts((ROUTED, bare(5)), layers=4), "routed_experts: a row has 6 numbers, which are not"),
        (facts((INDEXER, bare(5))), "indexer_topk: the engine did not say how many layers"),
        (facts((ROUTED, InlineBlob(b"!" * 160))), "routed_experts: it is no base64 text"),
        (facts((ROUTED, blob_of(bytes(120) + b"x"))), "routed_experts: 121 bytes are not 5 rows"),
        (facts(start=3), "routed_experts: the engine sent no rows from 3 to 5"),
        (facts((ROUTED, bare(1, 9)), (INDEXER, bare(1, 9))), "int32; indexer_topk: 9 bytes"),
    ],
)
def test_a_mismatch_is_named_and_the_turn_kept(found: TurnFacts, told: str):
    assert told in found.replay_error
    assert found.log_probs.tolist() == [-0.5, -1.0]


def test_rows_that_change_their_width_are_a_mismatch():
    before = facts((ROUTED, bare(5)))
    found = facts((ROUTED, bare(9, 48)), prompt_count=8, before=before)
    assert found.replay_error == "routed_experts: a row has 48 bytes, it had 24 before"
    # What was wrong before is no measure.
    after = facts((ROUTED, bare(13)), prompt_count=12, before=found)
    assert after.replay_error == ""
    assert facts((ROUTED, bare(9)), prompt_count=8, before=before).replay_error == ""
