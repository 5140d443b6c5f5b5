"""Assembly: goldens by hand; random sessions are in test_assembly_at_random.py."""

from __future__ import annotations

import math
from collections.abc import Sequence

import pytest

from sessions.core.samples.assembly import (
    EmptyReason,
    Sample,
    SampleRules,
    Status,
    TurnSample,
    assemble,
)
from sessions.errors.samples import ReplayMismatchError, SamplesMisalignedError
from sessions.replay.taken import InlineBlob
from tests.support.samples import arrays_of, blob_of, decode, rows_for, turn_of

ROUTED = "routed_experts"


def made(turns: Sequence[TurnSample], *, trim: int = 0, limit: int | None = None) -> Sample:
    rules = SampleRules(max_trim_count=trim, max_seq_len=limit)
    found = assemble(turns, rules, decode)
    assert isinstance(found, Sample)
    return found


def routed(count: int) -> list[tuple[str, InlineBlob]]:
    """All rows of so many tokens."""
    return [(ROUTED, blob_of(rows_for(count - 1, 2, 2).tobytes()))]


def two_turns() -> list[TurnSample]:
    first = turn_of(
        [1, 2, 3],
        [10, 11],
        replay=routed(5),
        layers=2,
        weight_version="v1",
        cached_tokens=1,
        prompt_tokens=3,
        e2e_latency=0.5,
        requested_at=1.0,
        committed_at=2.0,
    )
    second = turn_of(
        [1, 2, 3, 10, 11, 4, 5],
        [12, 13],
        replay=routed(9),
        layers=2,
        finish_reason="tool_calls",
        weight_version="v2",
        cached_tokens=5,
        prompt_tokens=7,
        requested_at=3.0,
        committed_at=4.0,
    )
    return [first, second]


def test_two_turns_become_one_sample():
    sample = made(two_turns())
    assert sample.response == "<10><11><4><5><12><13>"
    assert sample.status is Status.COMPLETED
    assert sample.weight_versions == ["v1", "v2"]
    assert (sample.cached_count, sample.prompt_count) == (6, 10)
    assert sample.lifecycle == [
        {"t0": 1.5, "t1": 2.0, "turn": 1, "req_ts": 1.0, "prev_t1": None},
        {"t0": None, "t1": 4.0, "turn": 2, "req_ts": 3.0, "prev_t1": 2.0},
    ]
    arrays = arrays_of(sample)
    assert arrays["tokens"].tolist() == [1, 2, 3, 10, 11, 4, 5, 12, 13]
    assert arrays["loss_mask"].tolist() == [1, 1, 0, 0, 1, 1]
    assert arrays["rollout_log_probs"].tolist() == [-10.0, -11.0, 0.0, 0.0, -12.0, -13.0]
    assert arrays["rollout_routed_experts"].tolist() == rows_for(8, 2, 2).tolist()
    assert "rollout_indexer_topk" not in arrays


def test_one_turn_has_its_times_as_an_object():
    sample = made(two_turns()[:1])
    assert sample.lifecycle == {"t0": 1.5, "t1": 2.0, "turn": 1, "req_ts": 1.0, "prev_t1": None}
    assert sample.response == "<10><11>"


def test_what_does_not_fit_is_cut_with_its_rows():
    sample = made(two_turns(), limit=8)
    assert sample.status is Status.TRUNCATED
    assert sample.response == "<10><11><4><5><12>"
    arrays = arrays_of(sample)
    assert arrays["tokens"].tolist() == [1, 2, 3, 10, 11, 4, 5, 12]
    assert arrays["loss_mask"].tolist() == [1, 1, 0, 0, 1]
    assert arrays["rollout_routed_experts"].tolist() == rows_for(7, 2, 2).tolist()


@pytest.mark.parametrize("limit", [5, 6, 7])
def test_a_turn_of_which_nothing_sampled_fits_is_left_out(limit: int):
    sample = made(two_turns(), limit=limit)
    assert sample.status is Status.COMPLETED
    assert sample.token_count == 5
    assert arrays_of(sample)["rollout_routed_experts"].shape[0] == 4


@pytest.mark.parametrize(
    ("limit", "tokens", "status"),
    [(4, 4, "truncated"), (9, 9, "completed"), (None, 9, "completed")],
)
def test_a_limit_is_the_most_tokens(limit: int | None, tokens: int, status: str):
    sample = made(two_turns(), limit=limit)
    assert (sample.token_count, sample.status.value) == (tokens, status)


@pytest.mark.parametrize("limit", [1, 2, 3])
def test_all_is_truncated_when_the_first_prompt_fills_the_limit(limit: int):
    rules = SampleRules(max_trim_count=0, max_seq_len=limit)
    assert assemble(two_turns(), rules, decode) is EmptyReason.ALL_TRUNCATED


def test_no_turn_is_no_sample():
    assert assemble([], SampleRules(max_trim_count=0), decode) is EmptyReason.NO_RECORDS


@pytest.mark.parametrize(
    ("reason", "status"),
    [
        ("stop", "completed"),
        ("tool_calls", "completed"),
        ("length", "truncated"),
        ("abort", "aborted"),
        ("content_filter", "pending"),
        (None, "pending"),
    ],
)
def test_joining_stops_after_a_turn_that_is_not_completed(reason: str | None, status: str):
    first = turn_of([1], [10], finish_reason=reason)
    sample = made([first, turn_of([1, 10, 2], [11])])
    is_joined = status == "completed"
    assert sample.status.value == status
    assert sample.token_count == (4 if is_joined else 2)


def test_joining_stops_before_a_turn_that_lacks_replay_data():
    turns = two_turns()
    bare = turn_of([1, 2, 3, 10, 11, 4, 5], [12, 13])
    assert made([turns[0], bare]).token_count == 5
    # The other way round the rows are those of the last turn.
    sample = made([turn_of([1, 2, 3], [10, 11]), turns[1]])
    assert sample.token_count == 9
    assert arrays_of(sample)["rollout_routed_experts"].shape[0] == 8


def glm_turns(last: int = 11) -> list[TurnSample]:
    """The last sampled token opens the next message, or was replaced by what does."""
    return [turn_of([1, 2], [10, 11]), turn_of([1, 2, 10, last, 5], [12, 13])]


def test_a_token_that_joining_dropped_leaves_the_sample():
    sample = made(glm_turns(99), trim=1)
    arrays = arrays_of(sample)
    assert arrays["tokens"].tolist() == [1, 2, 10, 99, 5, 12, 13]
    assert arrays["loss_mask"].tolist() == [1, 0, 0, 1, 1]
    assert arrays["rollout_log_probs"].tolist() == [-10.0, 0.0, 0.0, -12.0, -13.0]
    assert sample.response == "<10><99><5><12><13>"


def test_a_token_that_joining_put_back_stays_in_the_sample():
    assert arrays_of(made(glm_turns(11), trim=1))["loss_mask"].tolist() == [1, 1, 0, 1, 1]


def test_more_than_joining_may_drop_is_misaligned():
    with pytest.raises(SamplesMisalignedError, match="turn 1: the history does not hold") as caught:
        made(glm_turns(99))
    assert caught.value.status == 422
    assert caught.value.code == "samples_misaligned"


@pytest.mark.parametrize(
    ("turns", "told"),
    [
        (
            [turn_of([1], [10, 11]), turn_of([1, 10, 11], [12])],
            "turn 2 has no token between",
        ),
        (
            [turn_of([1], [10, 11]), turn_of([7, 10, 11, 2], [12])],
            "the tokens of turn 2 do not begin with those of turn 1",
        ),
        (
            [turn_of([1], [10, 11]), turn_of([1, 10], [11, 12])],
            "the cursor is at token 3 after turn 1, and turn 2 has a prompt of 2",
        ),
    ],
)
def test_turns_that_make_no_one_sequence_are_misaligned(turns: list[TurnSample], told: str):
    with pytest.raises(SamplesMisalignedError, match=told):
        made(turns)


def test_a_flagged_turn_refuses_the_session_even_where_its_rows_are_not_needed():
    turns = two_turns()
    flagged = turn_of([1, 2, 3], [10, 11], replay=[(ROUTED, blob_of(bytes(10)))])
    with pytest.raises(ReplayMismatchError, match="turn 1"):
        made([flagged, turns[1]])


def test_a_number_that_is_none_stays_visible():
    sample = made([turn_of([1], [10, 11], log_probs=[None, -1.0])])
    found = arrays_of(sample)["rollout_log_probs"]
    assert math.isnan(found[0])
    assert found[1] == -1.0
