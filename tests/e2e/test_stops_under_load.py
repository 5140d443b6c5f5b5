"""SIGTERM under load: every request that was accepted is answered, and the group ends with 0.

`python -m benchmarks.endurance stops` does it twenty times and prints what clients saw.
"""

from __future__ import annotations

import asyncio
import signal
import sys

import pytest

from tests.support.group import Groups, RunningGroup
from tests.support.stop_load import KEPT_CLIENTS, NEW_CLIENTS, Stop, StopLoad, stop_under_load
from tests.support.topology import LONE, ROUTED_FOUR, Topology
from tests.support.waiting import wait_until_async

TOPOLOGY = pytest.mark.parametrize("topology", [LONE, ROUTED_FOUR], ids=lambda each: each.name)


def start(groups: Groups, topology: Topology, delay_s: int) -> RunningGroup:
    env = {"SESSIONS_DRAIN_DELAY_S": str(delay_s)}
    return topology.start(groups, "tests.support.apps:cases", env)


def check(stop: Stop) -> None:
    sys.stdout.write(f"{dict(stop.seen)}\n")
    assert stop.faults == []
    assert stop.seen["200"] > NEW_CLIENTS + KEPT_CLIENTS
    assert stop.seen["refused"] == NEW_CLIENTS + KEPT_CLIENTS


@TOPOLOGY
async def test_every_accepted_request_is_answered_without_a_drain_delay(
    groups: Groups, topology: Topology
):
    group = start(groups, topology, 0)
    stop = await stop_under_load(group)
    check(stop)
    # Nearly every kept connection has a request on its way when its last reply said nothing.
    assert stop.seen["idle end"] <= KEPT_CLIENTS // 4
    assert group.wait_exit() == 0


@TOPOLOGY
async def test_every_request_is_served_with_a_drain_delay(groups: Groups, topology: Topology):
    group = start(groups, topology, 1)
    stop = await stop_under_load(group)
    check(stop)
    # Kept connections were told to close with a reply; a new one may come after the delay.
    assert stop.seen["idle end"] == 0
    assert group.wait_exit() == 0


@TOPOLOGY
async def test_a_second_signal_ends_a_stop_under_load(groups: Groups, topology: Topology):
    group = start(groups, topology, 50)  # far over the deadline below
    load = StopLoad(group.address)
    running = asyncio.create_task(load.run())
    group.signal("arbiter", signal.SIGTERM)
    await wait_until_async(lambda: "Handling signal: term" in group.log(), "the stop began")
    count = load.stop.seen["200"]
    await wait_until_async(lambda: load.stop.seen["200"] > count, "the group serves on")
    group.signal("arbiter", signal.SIGTERM)
    await running
    assert group.wait_exit(10.0) in {0, 72}  # 72 if a request was in flight
    assert [fault for fault in load.stop.faults if "wrong" in fault] == []
