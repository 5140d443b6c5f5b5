"""Probes: each state of a group, what wins when several hold, and the JSON of every address."""

from __future__ import annotations

import json
import time
from pathlib import Path

import pytest

from sessions.lending.board import ROUTER_ROW, Board, Phase
from sessions.lending.group import Group
from sessions.lending.probes import (
    STALE_BEAT_S,
    VERSION,
    GroupState,
    group_state,
    is_probe,
    probe_reply,
)
from sessions.settings import RouterMode
from tests.support.members import group_of

HEALTH = [b"/healthz", b"/health"]


def ready_group(tmp_path: Path, shards: int = 2, router: RouterMode = RouterMode.AUTO) -> Group:
    """A group all of whose members are ready and beat."""
    group = group_of(tmp_path, shards=shards, router=router)
    for row in range(shards + 1):
        if row != ROUTER_ROW or group.settings.has_router:
            group.board.set_phase(row, Phase.READY, 1000 + row)
            group.board.beat(row, sessions=row, requests=10 * row)
    return group


def let_pass(monkeypatch: pytest.MonkeyPatch, seconds: float) -> None:
    """Move the board's clock on."""
    later = time.monotonic_ns() + int(seconds * 1e9)
    monkeypatch.setattr(time, "monotonic_ns", lambda: later)


def status_and_json(path: bytes, group: Group) -> tuple[int, dict[str, object]]:
    status, body = probe_reply(path, group)
    assert body.isascii()
    assert b" " not in body.replace(b"shard 1 died", b"")
    found: dict[str, object] = json.loads(body)
    return status, found


# --- states


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


@pytest.mark.parametrize("path", [b"/livez", b"/readyz", *HEALTH])
def test_the_four_addresses_are_probes(path: bytes) -> None:
    assert is_probe(path)


@pytest.mark.parametrize(
    "path", [b"/", b"", b"/livez/", b"/LIVEZ", b"/livez?x", b"/sessions/livez", b"/metrics"]
)
def test_no_other_path_is_a_probe(path: bytes) -> None:
    assert not is_probe(path)


def bring_into(group: Group, state: GroupState, monkeypatch: pytest.MonkeyPatch) -> None:
    if state is GroupState.STARTING:
        group.board.set_phase(1, Phase.BOOTING, 5)
    elif state is GroupState.DEGRADED:
        group.board.set_phase(2, Phase.DEAD, 5)
    elif state is GroupState.STALE:
        let_pass(monkeypatch, STALE_BEAT_S + 1)
    elif state is GroupState.DRAINING:
        group.board.set_draining()
    elif state is GroupState.DYING:
        group.board.set_cause("shard 1 died")
    assert group_state(group) is state


@pytest.mark.parametrize("state", GroupState)
def test_a_group_that_serves_is_ready_and_no_other(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, state: GroupState
) -> None:
    group = ready_group(tmp_path)
    bring_into(group, state, monkeypatch)
    status = 200 if state in {GroupState.OK, GroupState.DEGRADED} else 503
    assert status_and_json(b"/readyz", group) == (status, {"status": state.value})
    assert probe_reply(b"/readyz", group)[1] == b'{"status":"%s"}' % state.value.encode()
    for path in HEALTH:
        found_status, found = status_and_json(path, group)
        assert (found_status, found["status"]) == (status, state.value)


@pytest.mark.parametrize("state", GroupState)
def test_a_group_lives_in_every_state(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, state: GroupState
) -> None:
    group = ready_group(tmp_path)
    bring_into(group, state, monkeypatch)
    assert probe_reply(b"/livez", group) == (200, b'{"status":"ok"}')


@pytest.mark.parametrize("path", HEALTH)
def test_health_tells_the_whole_group(tmp_path: Path, path: bytes) -> None:
    group = ready_group(tmp_path)
    group.board.set_phase(2, Phase.DRAINING, 1002)
    status, found = status_and_json(path, group)
    uptime_s = found.pop("uptime_s")
    assert isinstance(uptime_s, float)
    assert 0 <= uptime_s < 60
    shards = found.pop("shards")
    assert isinstance(shards, list)
    ages = [shard.pop("beat_age_s") for shard in shards]
    assert all(0 <= age < 60 for age in ages)
    assert shards == [
        {"index": 0, "state": "ready", "pid": 1001, "sessions": 1, "requests": 10},
        {"index": 1, "state": "draining", "pid": 1002, "sessions": 2, "requests": 20},
    ]
    assert status == 200
    assert found == {
        "status": "ok",
        "instance_id": group.instance_id,
        "version": VERSION,
        "cause": "",
    }


def test_health_tells_the_cause_and_knows_no_age_of_a_shard_that_never_beat(
    tmp_path: Path,
) -> None:
    group = group_of(tmp_path, shards=1)
    group.board.set_cause("shard 1 died")
    status, found = status_and_json(b"/healthz", group)
    assert (status, found["cause"]) == (503, "shard 1 died")
    assert found["shards"] == [
        {
            "index": 0,
            "state": "forked",
            "pid": 0,
            "beat_age_s": None,
            "sessions": 0,
            "requests": 0,
        }
    ]


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
