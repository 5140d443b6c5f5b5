"""Probes: the JSON of every address in every state."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from sessions.lending.board import Phase
from sessions.lending.group import VERSION, Group
from sessions.lending.group_state import STALE_BEAT_S, GroupState, group_state
from sessions.lending.probes import is_probe, probe_reply
from tests.support.members import group_of, let_pass, ready_group

HEALTH = [b"/healthz", b"/health"]


def status_and_json(path: bytes, group: Group) -> tuple[int, dict[str, object]]:
    reply = probe_reply(path, group)
    status, body = reply.status, reply.body
    assert reply.content_type == "application/json"
    assert body.isascii()
    assert b" " not in body.replace(b"shard 1 died", b"")
    found: dict[str, object] = json.loads(body)
    return status, found


@pytest.mark.parametrize("path", [b"/livez", b"/readyz", b"/metrics", *HEALTH])
def test_the_addresses_are_probes(path: bytes) -> None:
    assert is_probe(path)


@pytest.mark.parametrize(
    "path", [b"/", b"", b"/livez/", b"/LIVEZ", b"/livez?x", b"/sessions/livez", b"/metrics/"]
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
    assert probe_reply(b"/readyz", group).body == b'{"status":"%s"}' % state.value.encode()
    for path in HEALTH:
        found_status, found = status_and_json(path, group)
        assert (found_status, found["status"]) == (status, state.value)


@pytest.mark.parametrize("state", GroupState)
def test_a_group_lives_in_every_state(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, state: GroupState
) -> None:
    group = ready_group(tmp_path)
    bring_into(group, state, monkeypatch)
    assert status_and_json(b"/livez", group) == (200, {"status": "ok"})


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


@pytest.mark.parametrize("state", GroupState)
def test_metrics_are_there_in_every_state(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, state: GroupState
) -> None:
    group = ready_group(tmp_path)
    bring_into(group, state, monkeypatch)
    reply = probe_reply(b"/metrics", group)
    assert reply.status == 200
    assert reply.content_type.startswith("text/plain; version=0.0.4")
    assert f'sessile_group_state{{state="{state.value}"}} 1.0\n'.encode() in reply.body
