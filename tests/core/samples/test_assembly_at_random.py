"""Assembly of random sessions against a slow, plain program."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np
from hypothesis import event, given, settings
from hypothesis import strategies as st

from sessions.core.samples.assembly import (
    EmptyReason,
    Sample,
    SampleRules,
    TurnSample,
    assemble,
)
from sessions.errors.client_visible import UnprocessableError
from sessions.errors.samples import ReplayGapError
from sessions.replay.taken import InlineBlob
from tests.support.samples import arrays_of, blob_of, decode, npy_of, rows_for, turn_of

ROUTED = "routed_experts"


@dataclass(kw_only=True)
class PlainTurn:
    """A turn as a record tells it: everything, as lists."""

    prompt: list[int]
    sampled: list[int]
    reason: str
    rows: np.ndarray | None
    start: int = 0
    is_npy: bool = False


@dataclass(kw_only=True)
class PlainSample:
    tokens: list[int]
    sampled_count: int
    mask: list[int]
    log_probs: list[float]
    text: str
    status: str
    rows: np.ndarray | None
    start: int
    turns: list[int] = field(default_factory=list)

    def strip(self, count: int) -> None:
        """Take tokens from the end."""
        if count:
            self.tokens = self.tokens[:-count]
            self.mask = self.mask[:-count]
            self.log_probs = self.log_probs[:-count]
            self.sampled_count -= count
            self.text = decode(self.tokens[len(self.tokens) - self.sampled_count :])


class Refused(Exception):  # noqa: N818 - a verdict of the model
    """The plain program makes no sample."""


STATUSES = {"stop": "completed", "length": "truncated", "abort": "aborted", "odd": "pending"}


def plainly(turns: list[PlainTurn], trim: int, limit: int | None) -> PlainSample | str:
    if not turns:
        return "no_records"
    samples = [
        PlainSample(
            tokens=turn.prompt + turn.sampled,
            sampled_count=len(turn.sampled),
            mask=[1] * len(turn.sampled),
            log_probs=[-float(token) for token in turn.sampled],
            text=decode(turn.sampled),
            status=STATUSES[turn.reason],
            rows=turn.rows,
            start=turn.start,
            turns=[number],
        )
        for number, turn in enumerate(turns)
    ]
    align(turns, samples, trim)
    kept = []
    for sample in samples:
        over = 0 if limit is None else len(sample.tokens) - limit
        if over <= 0:
            kept.append(sample)
            continue
        if over < sample.sampled_count:
            sample.strip(over)
            sample.status = "truncated"
            kept.append(sample)
        break
    if not kept:
        return "all_truncated"
    merged = kept[0]
    for sample in kept[1:]:
        if merged.status != "completed" or (merged.rows is not None and sample.rows is None):
            break
        merged = pairwise(merged, sample)
    return merged


def align(turns: list[PlainTurn], samples: list[PlainSample], trim: int) -> None:
    history, cursor = samples[-1].tokens, 0
    for at, (turn, sample) in enumerate(zip(turns, samples, strict=True)):
        if len(turn.prompt) < cursor:
            raise Refused
        cursor = len(turn.prompt)
        matched = 0
        for token in turn.sampled:
            if cursor < len(history) and token == history[cursor]:
                cursor += 1
                matched += 1
            else:
                break
        unmatched = len(turn.sampled) - matched
        if unmatched > (trim if at < len(turns) - 1 else 0):
            raise Refused
        sample.strip(unmatched)
    if cursor != len(history):
        raise Refused


def pairwise(a: PlainSample, b: PlainSample) -> PlainSample:
    seen = b.tokens[len(a.tokens) : len(b.tokens) - b.sampled_count]
    if not seen or b.tokens[: len(a.tokens)] != a.tokens:
        raise Refused
    rows, start = b.rows, b.start
    if b.rows is not None and b.start:
        if a.rows is None or a.start + len(a.rows) != b.start:
            raise Refused
        rows, start = np.concatenate([a.rows, b.rows]), a.start
    return PlainSample(
        tokens=b.tokens,
        sampled_count=b.sampled_count,
        mask=a.mask + [0] * len(seen) + b.mask,
        log_probs=a.log_probs + [0.0] * len(seen) + b.log_probs,
        text=a.text + decode(seen) + b.text,
        status=b.status,
        rows=rows,
        start=start,
        turns=a.turns + b.turns,
    )


TOKEN = st.integers(1, 3)


@st.composite
def sessions(draw: st.DrawFn) -> tuple[list[PlainTurn], int]:
    """Linear sessions, most of them as they should be; and what joining may drop."""
    trim = draw(st.integers(0, 2))
    mode = draw(st.sampled_from(["none", "all", "some", "npy", "patches"]))
    turns: list[PlainTurn] = []
    history: list[int] = []
    for _ in range(draw(st.integers(0, 5))):
        dropped = draw(st.integers(0, min(trim, len(turns[-1].sampled)))) if turns else 0
        if draw(st.integers(0, 25)) == 0:
            dropped += draw(st.integers(0, 2))
        prompt = history[: max(0, len(history) - dropped)]
        prompt += draw(
            st.lists(TOKEN, min_size=0 if draw(st.integers(0, 20)) == 0 else 1, max_size=3)
        )
        sampled = draw(st.lists(TOKEN, max_size=4))
        reason = draw(st.sampled_from(["stop"] * 6 + ["length", "abort", "odd"]))
        end = max(0, len(prompt) + len(sampled) - 1)
        has_rows = mode != "none" and not (mode == "some" and draw(st.booleans()))
        start = 0
        if mode == "patches" and turns:
            start = min(max(0, len(history) - 1), end)
            if draw(st.integers(0, 15)) == 0:
                start = draw(st.integers(0, end))
        rows = None
        if has_rows:
            rows = rows_for(end - start, 2, 2, start=start) + 100 * len(turns)
        turns.append(
            PlainTurn(
                prompt=prompt,
                sampled=sampled,
                reason=reason,
                rows=rows,
                start=start,
                is_npy=mode == "npy",
            )
        )
        history = prompt + sampled
    return turns, trim


def recorded(turn: PlainTurn) -> TurnSample:
    replay: list[tuple[str, InlineBlob]] = []
    if turn.rows is not None:
        data = npy_of(turn.rows.astype("<u2")) if turn.is_npy else turn.rows.tobytes()
        replay.append((ROUTED, blob_of(data)))
    return turn_of(
        turn.prompt,
        turn.sampled,
        replay=replay,
        starts={ROUTED: turn.start},
        layers=2,
        finish_reason=turn.reason,
    )


@given(sessions(), st.none() | st.integers(1, 25))
@settings(derandomize=True, deadline=None, max_examples=250)
def test_assembly_does_what_a_plain_program_does(
    session: tuple[list[PlainTurn], int], limit: int | None
):
    turns, trim = session
    rules = SampleRules(max_trim_count=trim, max_seq_len=limit)
    try:
        expected: PlainSample | str | None = plainly(turns, trim, limit)
    except Refused:
        expected = None
    try:
        found = assemble([recorded(turn) for turn in turns], rules, decode)
    except UnprocessableError as error:
        event(error.code)
        is_gap = isinstance(error, ReplayGapError)
        assert expected is None or (is_gap and isinstance(expected, PlainSample) and expected.start)
        return
    if isinstance(found, EmptyReason):
        event(found.value)
        assert found.value == expected
        return
    assert isinstance(expected, PlainSample)
    event(f"{len(found.spans)} turns joined")
    compare(found, expected)


def compare(found: Sample, expected: PlainSample) -> None:
    arrays: dict[str, Any] = {name: a.tolist() for name, a in arrays_of(found).items()}
    wanted: dict[str, Any] = {
        "tokens": expected.tokens,
        "loss_mask": expected.mask,
        "rollout_log_probs": expected.log_probs,
    }
    if expected.rows is not None:
        wanted["rollout_routed_experts"] = expected.rows[
            : max(0, len(expected.tokens) - 1)
        ].tolist()
    assert arrays == wanted
    assert found.response == expected.text
    assert found.status.value == expected.status
    times = found.lifecycle if isinstance(found.lifecycle, list) else [found.lifecycle]
    assert [time["turn"] - 1 for time in times] == expected.turns
