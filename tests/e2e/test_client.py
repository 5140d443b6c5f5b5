"""The client against real groups: what its fake server promises is what a server does."""

from __future__ import annotations

import signal

import pytest

from sessions.client.errors import GoneSessionError, UnhealthyError, UnknownSessionError
from sessions.client.sync_client import SessionClient
from tests.support.group import Groups
from tests.support.waiting import wait_until

ENV = {"SESSIONS_ENGINE_URL": "sim:", "SESSIONS_DRAIN_DELAY_S": "1"}


@pytest.mark.parametrize("shards", [1, 2])
def test_a_session_lives_and_the_group_is_healthy_until_it_drains(groups: Groups, shards: int):
    group = groups.start(shards=shards, env=ENV)
    faults: list[str] = []

    def is_unhealthy() -> bool:
        try:
            client.check()
        except UnhealthyError as error:
            faults.append(str(error))
        return bool(faults)

    with SessionClient(group.url) as client:
        pids = {pid for member, pid in group.pids.items() if member.startswith("shard")}
        assert {row.pid for row in client.check().shards} == pids

        session = client.create()
        assert session.base_url == f"{group.url}/sessions/{session.session_id}/v1"
        assert session.anthropic_base_url == f"{group.url}/sessions/{session.session_id}"
        found = client.records(session.session_id)
        assert (found.session_id, found.records) == (session.session_id, [])
        client.delete(session.session_id)
        with pytest.raises(GoneSessionError):
            client.records(session.session_id)
        with pytest.raises(UnknownSessionError):
            client.delete("a" * 32)

        group.signal("arbiter", signal.SIGTERM)
        wait_until(is_unhealthy, "the check fails")
        assert faults == [f"{group.url} is draining and takes no new work"]
        assert group.wait_exit() == 0
        with pytest.raises(UnhealthyError, match="does not answer: connection refused"):
            client.check()
