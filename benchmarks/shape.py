"""The shape of a training run: how long contexts and replies grow, turn by turn; pure.

A turn's reply carries a row of expert ids for every token of its context but the last, so the size
of replies follows the context. Contexts grow in equal steps by what tools return.

Spec: docs/benchmark.md#production-shape
"""

from __future__ import annotations

import random
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

MIB: Final = 1 << 20
ROW_UNIT_BYTES: Final = 1000  # 25 layers, 10 experts each, as int32
_LONG_TURNS: Final = 50  # a session in production
_CONTEXT_SPARE: Final = 8192  # the last reply is a little longer than planned

# Each is one token of the packaged tokenizer with the space before it.
_WORDS: Final = [
    "time",
    "year",
    "people",
    "way",
    "day",
    "man",
    "thing",
    "woman",
    "life",
    "child",
    "world",
    "school",
    "state",
    "family",
    "student",
    "group",
    "country",
    "problem",
    "hand",
    "part",
    "place",
    "case",
    "week",
    "company",
    "system",
    "program",
    "question",
    "work",
    "government",
    "number",
    "night",
    "point",
    "home",
    "water",
    "room",
    "mother",
    "area",
    "money",
    "story",
    "fact",
    "month",
    "lot",
    "right",
    "study",
    "book",
    "eye",
    "job",
    "word",
    "business",
    "issue",
    "side",
    "kind",
    "head",
    "house",
    "service",
    "friend",
    "father",
    "power",
    "hour",
    "game",
    "line",
    "end",
    "member",
    "law",
    "car",
    "city",
    "community",
    "name",
    "president",
    "team",
    "minute",
    "idea",
]


@dataclass(frozen=True, slots=True, kw_only=True)
class Shape:
    """How much a run does.

    Attributes:
        sessions: How many, all at the same time.
        turns: Of each session.
        final_body_bytes: Replay in the reply of a session's last turn, as base64 text.
        row_bytes: Expert ids of one token before base64; a multiple of `ROW_UNIT_BYTES`.
    """

    sessions: int
    turns: int
    final_body_bytes: int
    row_bytes: int = ROW_UNIT_BYTES

    @property
    def final_tokens(self) -> int:
        """Tokens of prompt and reply together in the last turn."""
        return self.final_body_bytes * 3 // 4 // self.row_bytes + 1

    def targets(self) -> list[int]:
        """Tokens of prompt and reply together after each turn."""
        return [self.final_tokens * turn // self.turns for turn in range(1, self.turns + 1)]

    def late_targets(self, turns: int) -> list[int]:
        """The same for a session that begins large, as the last turns of a long one."""
        step = max(1, self.final_tokens // _LONG_TURNS)
        before = max(1, self.final_tokens - step * (turns - 1))
        return [before + step * turn for turn in range(turns)]

    def total_bytes(self) -> int:
        """Replay in all replies of all sessions."""
        of_one = sum(replay_bytes(tokens, self.row_bytes) for tokens in self.targets())
        return self.sessions * of_one

    def engine_options(self, think_s: float) -> Mapping[str, str]:
        """Options of a simulated engine that answers in this shape."""
        return {
            "layers": "25",
            "topk": "10",
            "experts": "256",
            "pad": str(self.row_bytes // ROW_UNIT_BYTES),
            "context": str(self.final_tokens + _CONTEXT_SPARE),
            "journal": "0",
            "latency_s": str(think_s),
            "keep_alive_s": "3600",
        }


def replay_bytes(tokens: int, row_bytes: int) -> int:
    """Base64 characters of the replay of a context of so many tokens."""
    return ((tokens - 1) * row_bytes + 2) // 3 * 4


def text_of_tokens(count: int, seed: str) -> str:
    """A text of exactly so many tokens, other ones for another seed."""
    return " " + " ".join(random.Random(seed).choices(_WORDS, k=max(1, count)))
