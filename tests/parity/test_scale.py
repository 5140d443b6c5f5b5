"""One, two and seven shards: many sessions, connections and exchanges at once, large bodies.

`python -m benchmarks.endurance scale` does the same with the full numbers, and once with 16 shards.
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.parity.conftest import ENGINE
from tests.support.crashes import APP
from tests.support.crowds import (
    REFUSED_COUNT,
    carry_large,
    hold_many,
    refuse_beyond,
    statuses_of_idle,
)
from tests.support.group import RunningGroup, open_groups
from tests.support.sessions_mix import live_sessions
from tests.support.topology import LONE, ROUTED_SEVEN, ROUTED_TWO, Topology

SESSIONS = 100
IDLE = 300
IN_FLIGHT = 150
LIMIT = 40
LARGE_BYTES = 64 << 20


@pytest.fixture(scope="module", params=[LONE, ROUTED_TWO, ROUTED_SEVEN], ids=lambda each: each.name)
def topology(request: pytest.FixtureRequest) -> Topology:
    found: Topology = request.param
    return found


@pytest.fixture(scope="module")
def rollouts(topology: Topology) -> Iterator[RunningGroup]:
    with open_groups() as groups:
        yield topology.start(groups, "", ENGINE)


@pytest.fixture(scope="module")
def group(topology: Topology) -> Iterator[RunningGroup]:
    with open_groups() as groups:
        yield topology.start(groups, APP)


@pytest.fixture(scope="module")
def narrow(topology: Topology) -> Iterator[RunningGroup]:
    with open_groups() as groups:
        yield topology.start(groups, APP, {"SESSIONS_MAX_CONNECTIONS": str(LIMIT)})


@pytest.mark.parametrize("kept_connections", [0, 8], ids=["new", "kept"])
async def test_many_sessions_live_side_by_side(rollouts: RunningGroup, kept_connections: int):
    lives = await live_sessions(
        rollouts.address, sessions=SESSIONS, turns=2, kept_connections=kept_connections
    )
    assert lives.wrong == []
    assert lives.statuses == {200: 4 * SESSIONS, 204: SESSIONS, 410: SESSIONS}


async def test_idle_connections_answer_again_for_other_sessions(group: RunningGroup):
    assert await statuses_of_idle(group.address, IDLE) == [{200}, {200}]


async def test_many_exchanges_are_in_flight_at_once(group: RunningGroup, topology: Topology):
    assert await hold_many(group.address, topology.shards, IN_FLIGHT) == IN_FLIGHT


async def test_large_bodies_arrive_whole_both_ways(group: RunningGroup):
    await carry_large(group.address, LARGE_BYTES)


async def test_connections_beyond_the_limit_are_refused_and_served_when_others_leave(
    narrow: RunningGroup,
):
    refused = await refuse_beyond(narrow.address, LIMIT)
    assert {reply.status for reply in refused} == {503}
    assert {reply.header("retry-after") for reply in refused} == {"1"}
    assert {reply.header("connection") for reply in refused} == {"close"}
    assert len(refused) == REFUSED_COUNT
