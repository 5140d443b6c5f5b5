"""Every case of the corpus, sent in every way, to a lone shard and to four shards.

The files `*.http` say what is sent and what must come back; `slow/` needs short time-outs. Besides
that: both servers give the same answers, no body is ever run as a request (traps), no bad input
gives a 5xx, and nothing hangs.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from pathlib import Path
from typing import Final

import pytest

from sessions.routing.ids import owner_of
from tests.corpus.conftest import Pair
from tests.support.corpus import Case, Way, read_corpus
from tests.support.corpus_play import AROUND, Play, play_case, plays_of

FOLDER: Final = Path(__file__).parent
CASES: Final = read_corpus(FOLDER)
SLOW: Final = read_corpus(FOLDER / "slow")
SPLITS: Final = 3  # random splits of each case


async def play_on_both(pair: Pair, case: Case, plays: Sequence[Play]) -> list[str]:
    """Play a case in all these ways on both servers at once; what was wrong, in words."""
    played = await asyncio.gather(
        *(play_case(group.address, case, play) for play in plays for group in pair.groups)
    )
    wrong = []
    for play, lone, routed in zip(plays, played[::2], played[1::2], strict=True):
        name = f"{case.name} {play.way.value} {play.seed}"
        wrong += [f"{name} lone: {text}" for text in lone.wrong]
        wrong += [f"{name} routed: {text}" for text in routed.wrong]
        if lone.replies != routed.replies:
            wrong.append(f"{name}: the answers differ: {lone.replies} {routed.replies}")
    return wrong


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
async def test_is_answered_as_the_case_says_by_both(pair: Pair, case: Case):
    sprung_before = pair.sprung_traps()
    assert await play_on_both(pair, case, plays_of(case, SPLITS)) == []
    assert pair.sprung_traps() == sprung_before


async def test_slow_clients_are_answered_as_the_case_says_by_both(impatient_pair: Pair):
    wrong = await asyncio.gather(
        *(play_on_both(impatient_pair, case, plays_of(case, 1)) for case in SLOW)
    )
    assert [text for of_a_case in wrong for text in of_a_case] == []


def test_no_case_expects_a_5xx_and_all_ways_are_used():
    cases = CASES + SLOW
    assert len(cases) >= 200
    assert [case.name for case in cases for each in case.replies if each.status >= 500] == []
    for way in Way:
        assert sum(way not in case.skip for case in cases) > 150


def test_sessions_in_the_corpus_belong_to_all_four_shards():
    owners = [owner_of(session, 4) for session in AROUND]
    assert sorted(owners) == [0, 1, 2, 3]
