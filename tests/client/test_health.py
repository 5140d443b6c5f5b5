"""Health documents as values, and the one line that says what is wrong."""

from __future__ import annotations

import json

import pytest

from sessions.client.answers import Answer
from sessions.client.errors import UnhealthyError
from sessions.client.health import parse_health, parse_healthy
from sessions.lending.board import Board, Phase
from tests.support.fake_server import FakeServer, shard

URL = "http://server.test"


def answer(health: object, status: int = 200) -> Answer:
    raw = health if isinstance(health, bytes) else json.dumps(health).encode()
    return Answer(status=status, headers={}, body=raw)


def fault(**changes: object) -> str:
    with pytest.raises(UnhealthyError) as caught:
        parse_healthy(answer(FakeServer().health | changes, 503), URL)
    line = str(caught.value)
    assert "\n" not in line
    return line.removeprefix(f"{URL} ")


def test_a_healthy_document_is_read_whole():
    health = parse_healthy(answer(FakeServer().health), URL)
    assert (health.status, health.version, health.uptime_s, health.cause) == ("ok", "0", 1.5, "")
    assert [(row.index, row.pid, row.state) for row in health.shards] == [
        (0, 100, "ready"),
        (1, 101, "ready"),
    ]


def test_a_starting_server_names_the_shards_it_waits_for():
    shards = [shard(0), shard(1, "booting", beat_age_s=None), shard(2, "forked", pid=12)]
    assert fault(status="starting", shards=shards) == (
        "is still starting: shard 1 (pid 101) is booting, shard 2 (pid 12) is forked"
    )


def test_a_stale_shard_is_named_with_the_age_of_its_beat():
    shards = [shard(0), shard(1, beat_age_s=34.5)]
    assert fault(status="stale", shards=shards) == (
        "has a shard whose loop does not turn: shard 1 (pid 101) last beat 34.5 s ago"
    )
    never = [shard(0, beat_age_s=None), shard(1, beat_age_s=34.5)]
    assert "shard 0 (pid 100) last beat inf s ago" in fault(status="stale", shards=never)


def test_a_draining_server_says_so_and_blames_no_shard():
    told = "is draining and takes no new work"
    assert fault(status="draining") == told
    assert fault(status="draining", shards=[shard(0, "draining"), shard(1, "drained")]) == told


def test_a_dying_server_tells_the_cause_on_one_line():
    cause = "shard 2 (pid 71) was killed\nby signal 9"
    assert fault(status="dying", cause=cause) == (
        "is going down: shard 2 (pid 71) was killed by signal 9"
    )


@pytest.mark.parametrize("status", ["ok", "degraded"])
def test_a_lost_shard_is_a_fault_although_the_rest_serves(status: str):
    assert fault(status=status, shards=[shard(0), shard(1, "dead")]).endswith(
        ": shard 1 (pid 101) is dead"
    )


def test_a_state_we_do_not_know_is_a_fault_in_its_own_word():
    assert fault(status="confused") == "is confused"


def test_a_shard_is_healthy_in_the_phase_that_the_server_calls_ready():
    board = Board(1)
    board.set_phase(board.row_of_shard(0), Phase.READY, 1)
    state = board.read_row(board.row_of_shard(0)).phase.name.lower()
    parse_healthy(answer(FakeServer().health | {"shards": [shard(0, state)]}), URL)


@pytest.mark.parametrize("field", FakeServer().health)
def test_a_document_without_one_of_its_fields_is_not_believed(field: str):
    health = FakeServer().health
    del health[field]
    assert parse_health(answer(health)) is None


@pytest.mark.parametrize("field", shard(0).keys() - {"requests"})
def test_a_shard_without_one_of_its_fields_is_not_believed(field: str):
    row = shard(0)
    del row[field]
    assert parse_health(answer(FakeServer().health | {"shards": [row]})) is None
    assert parse_health(answer(FakeServer().health | {"shards": [shard(0) | {"pid": "x"}]})) is None


@pytest.mark.parametrize(
    ("body", "status", "told"),
    [
        (b"<h1>It works!</h1>", 200, "does not tell its health: <h1>It works!</h1>"),
        (b'{"detail":"Not Found"}', 404, 'does not tell its health: 404: {"detail":"Not Found"}'),
        (b"", 503, "does not tell its health: 503: no body"),
    ],
)
def test_what_is_no_sessile_server_is_a_fault(body: bytes, status: int, told: str):
    with pytest.raises(UnhealthyError) as caught:
        parse_healthy(answer(body, status), URL)
    assert str(caught.value) == f"{URL} {told}"
