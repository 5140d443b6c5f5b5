"""The rules of lending against real groups, each named by its number."""

from __future__ import annotations

import contextlib
import resource
import signal

import pytest

from tests.e2e.conftest import Shared
from tests.support.apps import pattern_of, receipt_of
from tests.support.group import Groups, RunningGroup
from tests.support.ids import ids_of_shard
from tests.support.mix import run_mix
from tests.support.processes import descriptor_count, tcp_connection_count
from tests.support.raw import RawConnection, request_bytes
from tests.support.waiting import wait_until, wait_until_async

APP = "tests.support.apps:cases"


def start(groups: Groups, shards: int, env: dict[str, str] | None = None) -> RunningGroup:
    return groups.start(shards=shards, env=env, app=APP)


def other_sessions(shards: int) -> tuple[str, str]:
    """Two sessions, of two shards where there are two."""
    return ids_of_shard(0, shards)[0], ids_of_shard(shards - 1, shards)[0]


def test_a_slow_reader_gets_its_whole_reply_before_the_next_one(shared: Shared):
    """Rule 10, third condition: the write buffer is empty before BACK."""
    group = shared.group
    first, second = other_sessions(shared.topology.shards)
    size = 3_000_000
    with RawConnection(group.address, receive_buffer_bytes=4096) as slow:
        slow.send(
            request_bytes("GET", f"/sessions/{first}/echo?id=one&out={size}")
            + request_bytes("GET", f"/sessions/{second}/echo?id=two&out=9")
        )
        with RawConnection(group.address) as other:  # the shard is not busy meanwhile
            assert other.ask(request_bytes("GET", f"/sessions/{first}/echo?id=x")).status == 200
        assert slow.read_reply().body == pattern_of("one", size)
        assert slow.read_reply().body == pattern_of("two", 9)


def test_the_late_body_of_an_early_reply_is_never_taken_for_a_request(shared: Shared):
    """Rules 10 and 11: the rest of the body is discarded, then the connection goes on."""
    group = shared.group
    first, second = other_sessions(shared.topology.shards)
    smuggled = request_bytes("GET", f"/sessions/{second}/echo?id=smuggled&out=5")
    body = smuggled * 3
    with RawConnection(group.address) as connection:
        data = request_bytes("POST", f"/sessions/{first}/echo?id=early&early=1", body=body)
        head_bytes = len(data) - len(body)
        connection.send(data[:head_bytes])
        assert connection.read_reply().status == 413
        connection.send(data[head_bytes:], piece_bytes=len(smuggled))
        reply = connection.ask(request_bytes("GET", f"/sessions/{second}/echo?id=next&out=7"))
        assert reply.body == pattern_of("next", 7)


@pytest.mark.parametrize("chunk_bytes", [0, 11], ids=["length", "chunked"])
def test_an_h2c_upgrade_is_served_with_its_whole_body(shared: Shared, chunk_bytes: int):
    """Rule 4: llhttp gives no body after an upgrade, so the header is neutralised."""
    group = shared.group
    body = request_bytes("GET", "/sessions/a/echo?id=smuggled")
    upgrade = [
        ("Connection", "Upgrade, HTTP2-Settings"),
        ("Upgrade", "h2c"),
        ("HTTP2-Settings", "AAMAAABkAAQCAAAAAAIAAAAA"),
    ]
    with RawConnection(group.address) as connection:
        for _ in range(2):
            reply = connection.ask(
                request_bytes(
                    "POST", "/sessions/a/echo?id=h2", upgrade, body, chunk_bytes=chunk_bytes
                )
            )
            assert reply.status == 200
            assert reply.header("x-got") == receipt_of(body)


def test_websocket_and_connect_are_refused(shared: Shared):
    """Rule 4."""
    group = shared.group
    websocket = [("Connection", "Upgrade"), ("Upgrade", "websocket"), ("Sec-WebSocket-Key", "x")]
    with RawConnection(group.address) as connection:
        reply = connection.ask(request_bytes("GET", "/v1/responses", websocket))
        assert reply.status == 426
        assert connection.read_to_end() == b""
    with RawConnection(group.address) as connection:
        assert connection.ask(request_bytes("CONNECT", "example.org:443")).status == 405
        assert connection.read_to_end() == b""


def test_the_shards_hold_no_public_listener(groups: Groups):
    """Rule 3: with the router dead nobody could accept, so nobody may seem to."""
    group = start(groups, 2)
    sessions = [ids_of_shard(i, 2)[0] for i in range(2)]
    with RawConnection(group.address) as connection:
        for session in sessions:
            assert connection.ask(request_bytes("GET", f"/sessions/{session}/echo?id=1")).status
    group.signal("router", signal.SIGKILL)
    assert group.wait_exit() == 70
    with pytest.raises(ConnectionRefusedError):
        RawConnection(group.address)


def test_a_shard_without_descriptors_refuses_with_503_and_serves_on(groups: Groups):
    """Rule 13: EMFILE makes the kernel drop the descriptor in silence."""
    group = start(groups, 2)
    starved = ids_of_shard(0, 2)[0]
    fed = ids_of_shard(1, 2)[0]
    resource.prlimit(group.pids["shard 0"], resource.RLIMIT_NOFILE, (64, 64))
    statuses = []
    connections = []
    for number in range(80):
        connection = RawConnection(group.address)
        connections.append(connection)
        reply = connection.ask(request_bytes("GET", f"/sessions/{starved}/echo?id={number}&out=3"))
        statuses.append(reply.status)
        if reply.status == 503:
            assert reply.header("retry-after") == "1"
            assert reply.header("x-should-retry") == "true"
            reply = connection.ask(request_bytes("GET", f"/sessions/{fed}/echo?id=f&out=3"))
        assert reply.body == pattern_of("f" if statuses[-1] == 503 else str(number), 3)
    assert statuses.count(200) > 20
    assert statuses.count(503) > 10
    for connection in connections:
        connection.close()

    def serves_again() -> bool:
        with RawConnection(group.address) as connection:
            target = f"/sessions/{starved}/echo?id=again"
            return connection.ask(request_bytes("GET", target)).status == 200

    wait_until(serves_again, "the shard serves again after the connections closed")


def test_the_reply_arrives_although_the_client_goes_on_sending(shared: Shared):
    """Rule 17: a lingering close, so that no reset eats the reply."""
    group = shared.group
    for _ in range(20):
        with RawConnection(group.address) as connection:
            data = request_bytes("POST", "/sessions/a/echo?id=e&early=1&cl=1", body=b"z" * 400_000)
            connection.send(b"GARBAGE " + data)
            reply = connection.read_reply()
            assert reply.status == 400
            assert connection.read_to_end() == b""


async def test_descriptors_are_back_at_the_start_after_mixed_requests(shared: Shared):
    group = shared.group
    members = {name: pid for name, pid in group.pids.items() if name != "arbiter"}

    def counts() -> dict[str, int]:
        return {name: descriptor_count(pid) for name, pid in members.items()}

    def has_no_client() -> bool:
        front = group.pids.get("router") or group.pids["shard 0"]
        return tcp_connection_count(front) == 0

    await run_mix(group.address, clients=4, exchanges=20, seed=99)  # what is made on first use
    await wait_until_async(has_no_client, "all connections closed", 30)
    before = counts()
    tally = await run_mix(group.address, clients=25, exchanges=210, seed=7)
    assert tally.exchanges >= 5000
    await wait_until_async(lambda: counts() == before, "descriptors are back", 30)


def test_a_shard_keeps_no_more_parked_copies_than_its_limit(groups: Groups):
    """Rule 9: it wishes to be rid of the one that waits the longest, and the router releases it."""
    limit = 5
    group = groups.start(shards=2, app=APP, env={"SESSIONS_PARKED_CONNECTIONS": str(limit)})
    sessions = [ids_of_shard(shard, 2)[0] for shard in range(2)]
    shards = [group.pids[f"shard {shard}"] for shard in range(2)]
    with contextlib.ExitStack() as stack:
        clients = [stack.enter_context(RawConnection(group.address)) for _ in range(20)]
        for _ in range(3):
            for number, client in enumerate(clients):
                target = f"/sessions/{sessions[number % 2]}/echo?id={number}&out=8"
                reply = client.ask(request_bytes("GET", target))
                assert reply.body == pattern_of(str(number), 8)
        wait_until(
            lambda: [tcp_connection_count(pid) for pid in shards] == [limit, limit],
            "copies over the limit are dropped",
        )
        assert tcp_connection_count(group.pids["router"]) == len(clients)
