"""The same answers from one lone shard and from a group, byte for byte."""

from __future__ import annotations

import pytest

from tests.parity.cases import CASES, Case
from tests.support.group import RunningGroup
from tests.support.transcript import Transcript


def play(case: Case, group: RunningGroup, *, keep_alive: bool) -> list[tuple[object, ...]]:
    script = Transcript(group.address, keep_alive=keep_alive)
    try:
        case(script)
    finally:
        script.close()
    return script.lines


@pytest.mark.parametrize("keep_alive", [False, True], ids=["new", "kept"])
@pytest.mark.parametrize("case", CASES, ids=lambda case: case.__name__)
def test_a_group_answers_as_a_lone_shard(
    lone: RunningGroup, routed: RunningGroup, case: Case, *, keep_alive: bool
):
    expected = play(case, lone, keep_alive=keep_alive)
    found = play(case, routed, keep_alive=keep_alive)
    assert len(expected) > 1
    for ours, theirs in zip(found, expected, strict=True):
        assert ours == theirs
