"""From turns that lead to one another to one training sample: align, truncate, merge.

Each step works on where turns begin and end; tokens are compared as arrays and copied once, when
the sample is written. The cost follows the number of tokens, and nothing is kept of it.

Must not know records, HTTP or how replay data is stored.

Spec: docs/samples.md#assembly
"""

from __future__ import annotations

import enum
from array import array
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Final

from sessions.core.engine_replies.turn_facts import TurnFacts
from sessions.core.samples.replay_tensor import ReplayTensor, check_replay, replay_tensor_of
from sessions.core.texts.json_text import JsonObject
from sessions.core.texts.shared_ids import SharedIds
from sessions.errors.samples import SamplesMisalignedError
from sessions.replay.scanner import REPLAY_FIELDS

Decode = Callable[[Sequence[int]], str]


class Status(enum.Enum):
    """How a sample ended; the values are those of the wire."""

    COMPLETED = "completed"
    TRUNCATED = "truncated"
    ABORTED = "aborted"
    PENDING = "pending"


class EmptyReason(enum.Enum):
    """Why a session gives no sample; the values are those of the wire."""

    NO_RECORDS = "no_records"
    ALL_TRUNCATED = "all_truncated"
    NONE_PICKED = "none_picked"


_STATUSES: Final = {
    "stop": Status.COMPLETED,
    "tool_calls": Status.COMPLETED,
    "length": Status.TRUNCATED,
    "abort": Status.ABORTED,
}


@dataclass(frozen=True, slots=True, kw_only=True)
class TurnSample:
    """One recorded turn.

    Attributes:
        ids: Prompt and completion; shared, not changed.
        facts: What else is known of it.
    """

    ids: SharedIds
    facts: TurnFacts


@dataclass(frozen=True, slots=True, kw_only=True)
class SampleRules:
    """What the settings and the request decide.

    Attributes:
        max_trim_count: Tokens that joining may drop from a turn's end.
        max_seq_len: The most tokens of a sample, None for no limit.
    """

    max_trim_count: int
    max_seq_len: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Span:
    """Sampled tokens within a sample.

    Attributes:
        start: Index of the first in the sample's tokens.
        stop: The one after the last.
        log_probs: One per token, or more.
    """

    start: int
    stop: int
    log_probs: array[float]


@dataclass(frozen=True, slots=True, kw_only=True)
class Sample:
    """One training sample.

    Attributes:
        token_ids: The last joined turn's tokens, shared; the sample's are the first of them.
        token_count: How many.
        spans: The sampled tokens of the joined turns, in order; the response begins with the
            first span, and what is between two was not sampled.
        response: Text of the response.
        status: Of the last turn.
        weight_versions: Those that are known, turn by turn.
        cached_count: Sum of the prompt tokens that the engine had cached.
        prompt_count: Sum of the prompt tokens.
        lifecycle: Times of the joined turns: an object for one, else a list.
        replay: Tensors by field; a field without data is absent.
    """

    token_ids: array[int]
    token_count: int
    spans: tuple[Span, ...]
    response: str
    status: Status
    weight_versions: list[str]
    cached_count: int
    prompt_count: int
    lifecycle: JsonObject | list[JsonObject]
    replay: dict[str, ReplayTensor]

    @property
    def response_start(self) -> int:
        """Index of the first token of the response."""
        return self.spans[0].start


@dataclass(frozen=True, slots=True, kw_only=True)
class _Part:
    """What a turn contributes: its tokens up to `end`, sampled from its prompt's end on."""

    turn: TurnSample
    number: int
    end: int
    status: Status

    @property
    def prompt_count(self) -> int:
        return self.turn.facts.prompt_count


def assemble(
    turns: Sequence[TurnSample], rules: SampleRules, decode: Decode
) -> Sample | EmptyReason:
    """Make the sample of a linear session, or of a leaf.

    Args:
        turns: The turns that lead to its last one, oldest first.
        rules: See there.
        decode: Token ids to text, special tokens kept.

    Returns:
        The sample, or why there is none.

    Raises:
        SamplesMisalignedError: The turns make no one sequence of tokens.
        ReplayMismatchError: A turn's replay data does not fit.
        ReplayGapError: The replay data does not join.
    """
    if not turns:
        return EmptyReason.NO_RECORDS
    check_replay([turn.facts for turn in turns])
    parts = _truncated(_aligned(turns, rules.max_trim_count), rules.max_seq_len)
    if not parts:
        return EmptyReason.ALL_TRUNCATED
    return _sample_of(_joined(parts), turns, decode)


def _aligned(turns: Sequence[TurnSample], max_trim_count: int) -> list[_Part]:
    """Where each turn's tokens end in the history, which is the last turn's: it ends there."""
    history = turns[-1].ids.whole()
    parts: list[_Part] = []
    cursor = 0
    for number, turn in enumerate(turns, 1):
        start, end = turn.facts.prompt_count, len(turn.ids)
        if start < cursor:
            raise SamplesMisalignedError(
                f"the cursor is at token {cursor} after turn {number - 1}, and turn {number} has a"
                f" prompt of {start}"
            )
        lowest = max(start, end - max_trim_count)
        cursor = next(
            (
                stop
                for stop in range(end, lowest - 1, -1)
                if turn.ids.part(start, stop) == history[start:stop]
            ),
            -1,
        )
        if cursor < 0:
            raise SamplesMisalignedError(
                f"turn {number}: the history does not hold what was sampled; trim_count may be up"
                f" to {max_trim_count}"
            )
        status = _STATUSES.get(turn.facts.finish_reason, Status.PENDING)
        parts.append(_Part(turn=turn, number=number, end=cursor, status=status))
    return parts


def _truncated(parts: list[_Part], limit: int | None) -> list[_Part]:
    if limit is None:
        return parts
    kept: list[_Part] = []
    for part in parts:
        if part.end > limit:
            if limit > part.prompt_count:
                kept.append(replace(part, end=limit, status=Status.TRUNCATED))
            break
        kept.append(part)
    return kept


def _joined(parts: Sequence[_Part]) -> list[_Part]:
    """The parts that become one sample, the first one at least."""
    joined = [parts[0]]
    for part in parts[1:]:
        last = joined[-1]
        if last.status is not Status.COMPLETED or not _replay_of(last) <= _replay_of(part):
            break
        if part.prompt_count <= last.end:
            raise SamplesMisalignedError(
                f"turn {part.number} has no token between what was sampled before and what it"
                " sampled"
            )
        if not part.turn.ids.has_beginning_of(last.turn.ids, last.end):
            raise SamplesMisalignedError(
                f"the tokens of turn {part.number} do not begin with those of turn {last.number}"
            )
        joined.append(part)
    return joined


def _replay_of(part: _Part) -> set[str]:
    return set(part.turn.facts.replay)


def _sample_of(parts: Sequence[_Part], turns: Sequence[TurnSample], decode: Decode) -> Sample:
    last = parts[-1]
    facts = [part.turn.facts for part in parts]
    tensors = {
        field: replay_tensor_of(facts, field, rows=max(0, last.end - 1)) for field in REPLAY_FIELDS
    }
    times = [_lifecycle_of(turns, part.number) for part in parts]
    return Sample(
        token_ids=last.turn.ids.whole(),
        token_count=last.end,
        spans=tuple(
            Span(start=part.prompt_count, stop=part.end, log_probs=part.turn.facts.log_probs)
            for part in parts
        ),
        response=_response_of(parts, decode),
        status=last.status,
        weight_versions=[fact.weight_version for fact in facts if fact.weight_version],
        cached_count=sum(fact.cached_count for fact in facts),
        prompt_count=sum(fact.engine_prompt_count for fact in facts),
        lifecycle=times[0] if len(times) == 1 else times,
        replay={field: tensor for field, tensor in tensors.items() if tensor is not None},
    )


def _response_of(parts: Sequence[_Part], decode: Decode) -> str:
    """Every stretch is decoded alone, so that a cut character stays where it was cut."""
    tokens = parts[-1].turn.ids.whole()
    texts = []
    end = parts[0].prompt_count
    for part in parts:
        texts += [
            decode(tokens[end : part.prompt_count]),
            decode(tokens[part.prompt_count : part.end]),
        ]
        end = part.end
    return "".join(texts)


def _lifecycle_of(turns: Sequence[TurnSample], number: int) -> JsonObject:
    facts = turns[number - 1].facts
    begun = None if facts.latency_s is None else facts.committed_at - facts.latency_s
    return {
        "t0": begun,
        "t1": facts.committed_at,
        "turn": number,
        "req_ts": facts.requested_at,
        "prev_t1": turns[number - 2].facts.committed_at if number > 1 else None,
    }
