"""Turns of a real group are counted on its metrics page, by the shard that ran them."""

from __future__ import annotations

from collections import defaultdict

import httpx
import pytest
from prometheus_client.parser import text_string_to_metric_families

from sessions.routing.ids import owner_of
from tests.support.group import Groups
from tests.support.waiting import wait_until

REPLAY = {"SESSIONS_ENGINE_URL": "sim:?layers=8&topk=8", "SESSIONS_ROUTING_REPLAY": "1"}
Numbers = dict[str, dict[str, float]]


def numbers_of(client: httpx.Client) -> Numbers:
    """Metric -> shard (and outcome) -> number."""
    page = client.get("/metrics")
    assert page.status_code == 200
    assert page.headers["content-type"].startswith("text/plain; version=0.0.4")
    found: Numbers = defaultdict(dict)
    for family in text_string_to_metric_families(page.text):
        for sample in family.samples:
            where = " ".join(sample.labels[name] for name in sorted(sample.labels, reverse=True))
            found[sample.name][where] = sample.value
    return found


@pytest.mark.parametrize("shards", [1, 2])
def test_turns_and_their_replay_are_counted_and_freed(groups: Groups, shards: int):
    group = groups.start(shards=shards, env=REPLAY)
    with httpx.Client(base_url=group.url, trust_env=False) as client:
        session = client.post("/sessions").json()["session_id"]
        owner = str(owner_of(session, shards))
        body = {"model": "sim", "messages": [{"role": "user", "content": "hi"}]}
        chat = f"/sessions/{session}/v1/chat/completions"
        assert client.post(chat, json=body).status_code == 200
        refused = {"model": "sim", "messages": [{"role": "user", "content": "x " * 200_000}]}
        assert client.post(chat, json=refused).status_code == 400

        def is_counted() -> bool:
            turns = numbers_of(client)["sessile_turns_total"]
            return turns.get(f"{owner} recorded") == 1 and turns[f"{owner} failed"] == 1

        wait_until(is_counted, "both turns are counted")
        found = numbers_of(client)
        assert found["sessile_sessions"][owner] == 1
        assert found["sessile_replay_sessions"][owner] == 1
        assert found["sessile_replay_stored_bytes"][owner] > 0
        assert (
            found["sessile_engine_reply_bytes_total"][owner]
            > found["sessile_replay_stored_bytes"][owner]
        )
        assert sum(found["sessile_turns_in_flight"].values()) == 0
        assert sum(found["sessile_ingest_held_bytes"].values()) == 0
        assert client.delete(f"/sessions/{session}").status_code == 204
        wait_until(
            lambda: numbers_of(client)["sessile_replay_stored_bytes"][owner] == 0, "it is freed"
        )
        assert numbers_of(client)["sessile_sessions_ended_total"][owner] == 1
