"""What a group answers before it is ready, and that its own sockets are private and speak."""

from __future__ import annotations

import os
import re
import signal
import socket
import stat

import pytest

from tests.support.group import Groups
from tests.support.raw import RawConnection, request_bytes
from tests.support.topology import LONE, ROUTED_FOUR, Topology
from tests.support.waiting import wait_until

TOPOLOGY = pytest.mark.parametrize("topology", [LONE, ROUTED_FOUR], ids=lambda each: each.name)
CASES = "tests.support.apps:cases"


@TOPOLOGY
def test_clients_are_told_that_the_server_is_starting(groups: Groups, topology: Topology):
    group = groups.start(
        shards=topology.shards,
        env=topology.env,
        app="tests.support.apps:boot_hang",
        wait_ready=False,
    )
    group.wait_listening()
    with RawConnection(group.address) as connection:
        reply = connection.ask(request_bytes("POST", "/sessions"))
    assert reply.status == 503
    assert reply.header("retry-after") == "1"
    assert reply.header("x-should-retry") == "true"
    assert b"starting" in reply.body
    with RawConnection(group.address) as connection:
        assert connection.ask(request_bytes("GET", "/livez")).status == 200
        ready = connection.ask(request_bytes("GET", "/readyz"))
    assert ready.status == 503
    assert b"starting" in ready.body
    group.signal("arbiter", signal.SIGTERM)
    assert group.wait_exit() == 0


@pytest.mark.parametrize("policy", ["halt", "continue"])
def test_a_shard_that_dies_before_the_others_are_there_ends_the_group(groups: Groups, policy: str):
    group = groups.start(
        shards=3,
        env={"SESSIONS_ON_SHARD_EXIT": policy},
        app="tests.support.apps:boot_hang_but_two",
        wait_ready=False,
    )
    wait_until(lambda: group.log().count("shard connected") == 2, "two shards to say hello")
    found = re.search(r"shard connected shard=(\d) pid=(\d+)", group.log())
    assert found is not None
    os.kill(int(found[2]), signal.SIGKILL)
    assert group.wait_exit() == 70
    group.wait_gone()
    assert f"shard {found[1]} (pid {found[2]}) was killed by SIGKILL" in group.log()
    assert "goes on" not in group.log()


@TOPOLOGY
def test_every_shard_answers_on_a_private_socket_of_its_own(groups: Groups, topology: Topology):
    group = topology.start(groups, CASES)
    assert stat.S_IMODE(group.runtime_dir.stat().st_mode) == 0o700
    for index in range(topology.shards):
        path = group.runtime_dir / f"shard-{index}.sock"
        assert stat.S_IMODE(path.stat().st_mode) == 0o600
        with RawConnection(str(path)) as connection:
            where = connection.ask(request_bytes("GET", "/where"))
            assert where.body.decode() == str(group.pids[f"shard {index}"])
            assert connection.ask(request_bytes("GET", "/healthz")).status == 200


def test_a_stranger_on_the_channel_is_shown_out(groups: Groups):
    """Rule 7: after a broken message nothing on a channel can be trusted."""
    group = groups.start(shards=2, app=CASES)
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as stranger:
        stranger.settimeout(10)
        stranger.connect(str(group.runtime_dir / "router.channel"))
        stranger.send(b"no message")
        assert stranger.recv(10) == b""
    with RawConnection(group.address) as connection:
        assert connection.ask(request_bytes("GET", "/sessions/a/echo?id=1")).status == 200
    assert "broke the protocol" in group.log()
