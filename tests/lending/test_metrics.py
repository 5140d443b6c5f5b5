"""The metrics page: each number with a label per shard, as Prometheus' own parser reads it."""

from pathlib import Path

import pytest
from prometheus_client.parser import text_string_to_metric_families

from sessions.lending.board import Phase
from sessions.lending.group import VERSION, Group
from sessions.lending.group_state import GroupState
from sessions.lending.metrics import metrics_page
from sessions.lending.tally import Tally
from tests.support.members import group_of, ready_group


def samples_of(group: Group) -> dict[tuple[str, tuple[str, ...]], float]:
    """(name, label values in the order of their names, the shard's first) -> value."""
    return {
        (sample.name, tuple(sample.labels[name] for name in _ordered(sample.labels))): sample.value
        for family in text_string_to_metric_families(metrics_page(group).decode())
        for sample in family.samples
    }


def _ordered(labels: dict[str, str]) -> list[str]:
    return sorted(labels, key=lambda name: (name != "shard", name))


def test_every_number_of_every_shard_is_on_the_page(tmp_path: Path):
    group = ready_group(tmp_path)
    tally = Tally(
        ended_sessions=10,
        recorded_turns=11,
        unrecorded_turns=12,
        failed_turns=13,
        turns_in_flight=14,
        engine_bytes=15,
        replay_bytes=16,
        replay_sessions=17,
        ingest_bytes=18,
        loop_lag_us=19,
    )
    group.board.set_tally(2, tally)
    found = samples_of(group)
    one = {name: value for (name, labels), value in found.items() if labels[:1] == ("1",)}
    age_s = one.pop("sessile_beat_age_seconds")
    assert 0 <= age_s < 60
    assert found["sessile_turns_total", ("1", "recorded")] == 11
    assert found["sessile_turns_total", ("1", "unrecorded")] == 12
    assert found["sessile_turns_total", ("1", "failed")] == 13
    del one["sessile_turns_total"]
    assert one == {
        "sessile_shard_up": 1,
        "sessile_sessions": 2,
        "sessile_requests_total": 20,
        "sessile_sessions_ended_total": 10,
        "sessile_turns_in_flight": 14,
        "sessile_engine_reply_bytes_total": 15,
        "sessile_replay_stored_bytes": 16,
        "sessile_replay_sessions": 17,
        "sessile_ingest_held_bytes": 18,
        "sessile_loop_lag_seconds": pytest.approx(19e-6),
    }
    zero = {name for name, labels in found if labels[:1] == ("0",)}
    assert zero == {name for name, labels in found if labels[:1] == ("1",)}
    assert found["sessile_info", (group.instance_id, VERSION)] == 1


def test_one_state_of_the_group_is_on(tmp_path: Path):
    group = ready_group(tmp_path)
    group.board.set_draining()
    found = samples_of(group)
    states = {
        labels[0]: value for (name, labels), value in found.items() if name == "sessile_group_state"
    }
    assert states == {state.value: float(state is GroupState.DRAINING) for state in GroupState}


def test_a_shard_that_never_beat_has_no_age_and_is_not_up(tmp_path: Path):
    group = group_of(tmp_path, shards=1)
    group.board.set_phase(1, Phase.BOOTING, 1)
    found = samples_of(group)
    assert found["sessile_shard_up", ("0",)] == 0
    assert ("sessile_beat_age_seconds", ("0",)) not in found
