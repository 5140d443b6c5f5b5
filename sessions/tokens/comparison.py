"""Where the tokens of a session differ from what the template would have written.

A session's tokens are the sampled ones; the template writes the same conversation in its own
spelling. Both are cut at special tokens into segments. As long as the cuts agree, the text of each
pair of segments is compared: a difference in what the assistant said is a matter of spelling (the
sampled tokens are the truth), one anywhere else means that the model saw a prompt that the template
never makes. If the cuts disagree there are no pairs, and that alone is reported.

Must not know how prompts are built.

Spec: docs/sessions.md#mismatch
"""

from __future__ import annotations

import enum
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import takewhile

from sessions.tokens.families.declaration import Family
from sessions.tokens.tokenizer import Tokenizer


class MismatchType(enum.Enum):
    """What differs; all but `ASSISTANT_TEXT` mean that the prompts were wrong."""

    SPECIAL_TOKEN_COUNT = "special_token_count"  # noqa: S105 - no password
    SPECIAL_TOKEN_TYPE = "special_token_type"  # noqa: S105 - no password
    NON_ASSISTANT_TEXT = "non_assistant_text"
    ASSISTANT_TEXT = "assistant_text"


@dataclass(frozen=True, slots=True, kw_only=True)
class Mismatch:
    """One difference.

    Attributes:
        type: What differs.
        segment_index: Which segment, counted from 0; -1 if the segments do not pair.
        expected_text: What the template writes; empty if the segments do not pair.
        actual_text: What the session holds; empty likewise.
        detail: For a reader.
    """

    type: MismatchType
    segment_index: int
    expected_text: str
    actual_text: str
    detail: str

    def to_json(self) -> dict[str, object]:
        """The form in the metadata of a session."""
        return {
            "type": self.type.value,
            "segment_index": self.segment_index,
            "expected_text": self.expected_text,
            "actual_text": self.actual_text,
            "detail": self.detail,
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class _Segment:
    ids: tuple[int, ...]
    is_special: bool


def compare(
    expected_ids: Sequence[int], actual_ids: Sequence[int], family: Family, tokenizer: Tokenizer
) -> list[Mismatch]:
    """Compare two token sequences of one conversation.

    Args:
        expected_ids: The conversation rendered and encoded as a whole.
        actual_ids: The session's last checkpoint.
        family: Says where to cut, what starts the assistant's text and what to overlook at the end.
        tokenizer: Decodes segments.

    Returns:
        The differences in order; empty if there are none.
    """
    tail = frozenset(token for text in family.ignored_tail for token in tokenizer.encode(text))
    marks = _cutting_tokens(family, tokenizer)
    expected = _segments_of(_without_tail(expected_ids, tail), marks)
    actual = _segments_of(_without_tail(actual_ids, tail), marks)
    if [part.is_special for part in expected] == [part.is_special for part in actual]:
        return _compare_pairs(expected, actual, family, tokenizer)
    return [_unpaired(expected, actual)]


def _cutting_tokens(family: Family, tokenizer: Tokenizer) -> dict[int, str]:
    """Id to text of the tokens at which sequences are cut."""
    known = tokenizer.special_ids
    wanted = known if family.segment_specials is None else family.segment_specials
    return {known[text]: text for text in wanted if text in known}


def _without_tail(ids: Sequence[int], tail: frozenset[int]) -> Sequence[int]:
    end = len(ids)
    while end and ids[end - 1] in tail:
        end -= 1
    return ids[:end]


def _segments_of(ids: Sequence[int], marks: Mapping[int, str]) -> list[_Segment]:
    found: list[_Segment] = []
    start = 0
    for cut in [index for index, token in enumerate(ids) if token in marks]:
        if start < cut:
            found.append(_Segment(ids=tuple(ids[start:cut]), is_special=False))
        found.append(_Segment(ids=(ids[cut],), is_special=True))
        start = cut + 1
    if start < len(ids):
        found.append(_Segment(ids=tuple(ids[start:]), is_special=False))
    return found


def _unpaired(expected: list[_Segment], actual: list[_Segment]) -> Mismatch:
    pairs = zip(expected, actual, strict=False)
    same = takewhile(lambda pair: pair[0].is_special == pair[1].is_special, pairs)
    return Mismatch(
        type=MismatchType.SPECIAL_TOKEN_COUNT,
        segment_index=-1,
        expected_text="",
        actual_text="",
        detail=(
            f"{len(expected)} segments expected, {len(actual)} found; "
            f"the first {sum(1 for _ in same)} pair"
        ),
    )


def _compare_pairs(
    expected: list[_Segment], actual: list[_Segment], family: Family, tokenizer: Tokenizer
) -> list[Mismatch]:
    found: list[Mismatch] = []
    mark = ""
    for index, (wanted, got) in enumerate(zip(expected, actual, strict=True)):
        before, mark = mark, tokenizer.decode(wanted.ids) if wanted.is_special else ""
        if wanted.ids == got.ids:
            continue
        wanted_text, got_text = tokenizer.decode(wanted.ids), tokenizer.decode(got.ids)
        if wanted_text == got_text:
            continue
        kind = MismatchType.SPECIAL_TOKEN_TYPE
        if not wanted.is_special:
            start = family.assistant_start
            both_start = all((before + text).startswith(start) for text in (wanted_text, got_text))
            is_said = bool(start) and both_start
            kind = MismatchType.ASSISTANT_TEXT if is_said else MismatchType.NON_ASSISTANT_TEXT
        found.append(
            Mismatch(
                type=kind,
                segment_index=index,
                expected_text=wanted_text,
                actual_text=got_text,
                detail=f"{len(wanted.ids)} tokens expected, {len(got.ids)} found",
            )
        )
    return found
