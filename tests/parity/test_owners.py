"""Every call reaches the shard that holds its session, on whatever connection it comes."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.parity.conftest import ENGINE
from tests.support.group import Groups, RunningGroup
from tests.support.sessions_mix import live_sessions

SESSIONS = 300
UNROUTED = Path(__file__).parent.parent / "support" / "unrouted_conf.py"


@pytest.mark.timeout(180)
@pytest.mark.parametrize("kept_connections", [0, 8], ids=["new", "kept"])
async def test_no_call_of_a_session_reaches_a_wrong_shard(
    routed: RunningGroup, kept_connections: int
):
    lives = await live_sessions(
        routed.address, sessions=SESSIONS, turns=2, kept_connections=kept_connections
    )
    assert lives.wrong == []
    assert lives.statuses == {200: 4 * SESSIONS, 204: SESSIONS, 410: SESSIONS}


@pytest.mark.parametrize("kept_connections", [0, 8], ids=["new", "kept"])
async def test_the_same_calls_fail_with_routing_switched_off(groups: Groups, kept_connections: int):
    group = groups.start(shards=4, env=ENGINE, conf=UNROUTED)
    lives = await live_sessions(
        group.address, sessions=40, turns=2, kept_connections=kept_connections
    )
    assert len(lives.wrong) > 20, lives.statuses
