"""Stops of real groups: SIGTERM, SIGINT, a second signal, with and without exchanges in flight."""

from __future__ import annotations

import contextlib
import signal

import pytest

from tests.support.apps import pattern_of
from tests.support.fronts import error_code_of
from tests.support.group import Groups, RunningGroup
from tests.support.raw import RawConnection, request_bytes
from tests.support.topology import LONE, ROUTED_FOUR, Topology
from tests.support.waiting import wait_until

TOPOLOGY = pytest.mark.parametrize("topology", [LONE, ROUTED_FOUR], ids=lambda each: each.name)


def start(groups: Groups, topology: Topology, **env: str) -> RunningGroup:
    return topology.start(groups, "tests.support.apps:cases", env)


def in_flight(group: RunningGroup, sleep_s: float) -> RawConnection:
    """A connection with an exchange that its shard has."""
    connection = RawConnection(group.address, timeout_s=30)
    connection.send(request_bytes("GET", f"/sessions/a/echo?id=f&out=7&sleep={sleep_s}"))
    with RawConnection(group.address) as probe:  # the same shard: it has read both
        assert probe.ask(request_bytes("GET", "/sessions/a/echo?id=p")).status == 200
    return connection


@TOPOLOGY
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_an_idle_group_stops_with_0(groups: Groups, topology: Topology, number: signal.Signals):
    group = start(groups, topology)
    with RawConnection(group.address) as idle:
        assert idle.ask(request_bytes("GET", "/sessions/a/echo?id=1")).status == 200
        for _ in range(50):  # a client has its reply a moment before its shard gives it back
            assert idle.ask(request_bytes("GET", "/livez")).status == 200
        group.signal("arbiter", number)
        assert group.wait_exit() == 0
    group.wait_gone()


@TOPOLOGY
def test_a_stop_leaves_nothing_open(groups: Groups, topology: Topology):
    """Python's development mode tells of every transport and socket that nobody closed."""
    group = start(groups, topology, PYTHONDEVMODE="1")
    with contextlib.ExitStack() as clients:
        for number in range(4):
            client = clients.enter_context(RawConnection(group.address))
            request = request_bytes("GET", f"/sessions/{number}/echo?id={number}")
            assert client.ask(request).status == 200
        group.signal("arbiter", signal.SIGTERM)
        assert group.wait_exit() == 0
    told = [line for line in group.log().splitlines() if "Warning" in line or "destroyed" in line]
    assert told == []


@TOPOLOGY
def test_an_exchange_in_flight_gets_its_reply_before_the_group_stops(
    groups: Groups, topology: Topology
):
    group = start(groups, topology)
    connection = in_flight(group, 1.0)
    group.signal("arbiter", signal.SIGTERM)
    assert connection.read_reply().body == pattern_of("f", 7)
    assert connection.read_to_end() == b""
    connection.close()
    assert group.wait_exit() == 0


@TOPOLOGY
@pytest.mark.parametrize("everyone", [False, True], ids=["arbiter", "everyone"])
def test_a_quick_stop_answers_what_is_in_flight_and_exits_72(
    groups: Groups, topology: Topology, *, everyone: bool
):
    """A terminal sends its Ctrl-C to every process of the group."""
    group = start(groups, topology)
    connection = in_flight(group, 60)
    for member in group.pids if everyone else ["arbiter"]:
        group.signal(member, signal.SIGINT)
    assert_stopped(connection, "it was told to stop at once")
    assert group.wait_exit() == 72
    assert "requests cut: 1" in did_not_drain(group)


@TOPOLOGY
def test_a_second_signal_ends_a_stop_that_waits(groups: Groups, topology: Topology):
    group = start(groups, topology)
    connection = in_flight(group, 60)
    group.signal("arbiter", signal.SIGTERM)
    wait_until(lambda: "Handling signal: term" in group.log(), "the stop began")
    group.signal("arbiter", signal.SIGTERM)
    assert_stopped(connection, "it was told to stop at once")
    assert group.wait_exit() == 72


@TOPOLOGY
def test_an_exchange_that_outlives_the_graceful_time_is_answered_and_exits_72(
    groups: Groups, topology: Topology
):
    group = start(groups, topology, SESSIONS_GRACEFUL_S="1")
    connection = in_flight(group, 60)
    group.signal("arbiter", signal.SIGTERM)
    assert_stopped(connection, "1 s for what was in flight are over")
    assert group.wait_exit() == 72
    assert "requests cut: 1" in did_not_drain(group)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_an_exchange_of_a_stuck_shard_is_answered_by_the_router(
    groups: Groups, number: signal.Signals
):
    group = start(groups, ROUTED_FOUR, SESSIONS_GRACEFUL_S="1")
    connection = in_flight(group, 60)
    for member in group.pids:
        if member.startswith("shard"):
            group.signal(member, signal.SIGSTOP)
    group.signal("arbiter", number)
    assert_stopped(connection, "it was told to stop")
    assert group.wait_exit() == 72


def assert_stopped(connection: RawConnection, why: str) -> None:
    """The exchange is answered, and its connection ended."""
    reply = connection.read_reply()
    assert (reply.status, error_code_of(reply)) == (503, "group_stopped")
    assert why in reply.body.decode()
    assert (reply.header("x-should-retry"), reply.header("connection")) == ("false", "close")
    assert connection.read_to_end() == b""
    connection.close()


def did_not_drain(group: RunningGroup) -> str:
    """What the arbiter said of the members that had to cut."""
    return "".join(line for line in group.log().splitlines() if "did not drain" in line)


@TOPOLOGY
def test_the_group_serves_on_for_the_drain_delay_while_readiness_says_no(
    groups: Groups, topology: Topology
):
    group = start(groups, topology, SESSIONS_DRAIN_DELAY_S="2")
    group.signal("arbiter", signal.SIGTERM)

    def says_draining() -> bool:
        with RawConnection(group.address) as probe:
            reply = probe.ask(request_bytes("GET", "/readyz"))
        return reply.status == 503 and b"draining" in reply.body

    wait_until(says_draining, "readiness says draining")
    with RawConnection(group.address) as late:
        reply = late.ask(request_bytes("GET", "/sessions/a/echo?id=late&out=4"))
        assert reply.body == pattern_of("late", 4)
        assert reply.header("connection") == "close"
        assert late.read_to_end() == b""
    assert group.wait_exit() == 0
