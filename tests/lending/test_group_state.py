"""The state of a group: each one, and what wins when several hold."""

from __future__ import annotations

from pathlib import Path

import pytest

from sessions.lending.board import ROUTER_ROW, Board, Phase
from sessions.lending.group_state import STALE_BEAT_S, GroupState, group_state
from sessions.settings import RouterMode
from tests.support.members import group_of, let_pass, ready_group


@pytest.mark.parametrize("shards", [1, 2, 4])
@pytest.mark.parametrize("router", RouterMode)
def test_a_group_is_ok_when_all_members_are_ready(
    tmp_path: Path, shards: int, router: RouterMode
) -> None:
    assert group_state(ready_group(tmp_path, shards, router)) is GroupState.OK


@pytest.mark.parametrize("row", [ROUTER_ROW, 1, 2])
@pytest.mark.parametrize("phase", [Phase.FORKED, Phase.BOOTING])
def test_a_group_starts_until_its_last_member_is_ready(
    tmp_path: Path, row: int, phase: Phase
) -> None:
    group = ready_group(tmp_path)
    group.board.set_phase(row, phase, 5)
    assert group_state(group) is GroupState.STARTING


def test_a_lone_shard_waits_for_no_router(tmp_path: Path) -> None:
    group = ready_group(tmp_path, shards=1)
    assert not group.settings.has_router
    assert group_state(group) is GroupState.OK


def test_one_shard_behind_a_router_waits_for_it(tmp_path: Path) -> None:
    group = ready_group(tmp_path, shards=1, router=RouterMode.ALWAYS)
    group.board.set_phase(ROUTER_ROW, Phase.BOOTING, 5)
    assert group_state(group) is GroupState.STARTING


def test_a_shard_that_does_not_beat_makes_the_group_stale(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    group = ready_group(tmp_path)
    let_pass(monkeypatch, STALE_BEAT_S - 1)
    assert group_state(group) is GroupState.OK
    let_pass(monkeypatch, STALE_BEAT_S + 1)
    assert group_state(group) is GroupState.STALE
    group.board.beat(1)
    assert group_state(group) is GroupState.STALE
    group.board.beat(2)
    assert group_state(group) is GroupState.OK


def test_a_dead_shard_degrades_the_group_and_its_silence_is_not_stale(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    group = ready_group(tmp_path)
    group.board.set_phase(1, Phase.DEAD, 1001)
    assert group_state(group) is GroupState.DEGRADED
    let_pass(monkeypatch, STALE_BEAT_S + 1)
    group.board.beat(2)
    assert group_state(group) is GroupState.DEGRADED
    group.board.set_phase(2, Phase.BOOTING, 1002)
    assert group_state(group) is GroupState.STARTING


def test_a_group_that_was_told_to_stop_drains_whatever_its_shards_do(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    group = ready_group(tmp_path)
    group.board.set_draining()
    assert group_state(group) is GroupState.DRAINING
    group.board.set_phase(1, Phase.BOOTING, 5)
    let_pass(monkeypatch, STALE_BEAT_S + 1)
    assert group_state(group) is GroupState.DRAINING


def test_a_cause_of_death_wins_over_all(tmp_path: Path) -> None:
    group = ready_group(tmp_path)
    group.board.set_draining()
    group.board.set_phase(1, Phase.BOOTING, 5)
    group.board.set_cause("shard 1 died")
    assert group_state(group) is GroupState.DYING


# --- addresses


def test_the_state_follows_the_board_of_another_process(tmp_path: Path) -> None:
    """The same object is read after each write: nothing is cached."""
    group = group_of(tmp_path, shards=1)
    states = [group_state(group)]
    board: Board = group.board
    board.set_phase(1, Phase.READY, 1)
    board.beat(1)
    states.append(group_state(group))
    board.set_draining()
    states.append(group_state(group))
    assert states == [GroupState.STARTING, GroupState.OK, GroupState.DRAINING]
