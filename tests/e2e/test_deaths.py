"""Death of a member: every exchange gets a definite end, the group goes down (rules 18, 20-22)."""

from __future__ import annotations

import asyncio
import contextlib
import json
import signal
import sys
import time
from collections.abc import AsyncIterator

import pytest

from tests.support.group import Groups, RunningGroup
from tests.support.ids import ids_of_shard
from tests.support.raw import AsyncRawConnection, open_raw, request_bytes
from tests.support.replies import ConnectionEndedError, Reply, ReplyCutError

APP = "tests.support.apps:cases"
SHARDS = 4
LONG_S = 60


def start(groups: Groups, shards: int = SHARDS) -> RunningGroup:
    return groups.start(shards=shards, app=APP)


def long_request(session: str, body: bytes = b"") -> bytes:
    return request_bytes("POST", f"/sessions/{session}/echo?id=x&sleep={LONG_S}", body=body)


async def outcome_of(connection: AsyncRawConnection) -> Reply | str:
    try:
        return await connection.read_reply()
    except ReplyCutError:
        return "cut"
    except (ConnectionEndedError, ConnectionResetError):
        return "dropped"


def assert_last_words(reply: Reply | str, victim: str, how: str) -> None:
    assert isinstance(reply, Reply), reply
    assert reply.status == 503
    assert reply.header("x-should-retry") == "false"
    error = json.loads(reply.body)["error"]
    assert error["code"] == "group_dying"
    assert victim in error["message"]
    assert how in error["message"]


async def connect_all(
    stack: contextlib.AsyncExitStack, group: RunningGroup, requests: list[bytes]
) -> list[AsyncRawConnection]:
    """Send each request on a connection of its own; returns when all of them are accepted."""
    connections = [await stack.enter_async_context(open_raw(group.address)) for _ in requests]
    for connection, data in zip(connections, requests, strict=True):
        await connection.send(data)
    async with open_raw(group.address) as probe:  # accepted in order: the others are, too
        assert (await probe.ask(request_bytes("GET", "/healthz"))).status == 200
    return connections


async def kill_and_read(
    group: RunningGroup, victim: str, connections: list[AsyncRawConnection]
) -> tuple[list[Reply | str], float]:
    """Outcomes, and when the signal was sent."""
    killed_at = time.monotonic()
    group.signal(victim, signal.SIGKILL)
    outcomes = await asyncio.gather(*(outcome_of(connection) for connection in connections))
    return outcomes, killed_at


@pytest.fixture
async def stack() -> AsyncIterator[contextlib.AsyncExitStack]:
    async with contextlib.AsyncExitStack() as opened:
        yield opened


async def test_every_waiting_exchange_is_told_what_died_when_a_shard_is_killed(
    groups: Groups, stack: contextlib.AsyncExitStack
):
    group = start(groups)
    requests = [
        long_request(session, b"b" * size)
        for shard in range(SHARDS)
        for session, size in zip(
            ids_of_shard(shard, SHARDS, 6), [0, 1, 900, 70_000] * 2, strict=False
        )
    ]
    connections = await connect_all(stack, group, requests)
    outcomes, killed_at = await kill_and_read(group, "shard 1", connections)
    answered_s = time.monotonic() - killed_at
    for outcome in outcomes:
        assert_last_words(outcome, "shard 1", "SIGKILL")
    code = group.wait_exit()
    group.wait_gone()
    gone_s = time.monotonic() - killed_at
    sys.stdout.write(
        f"{len(outcomes)} answers within {answered_s:.3f} s, all gone {gone_s:.3f} s\n"
    )
    assert code == 70


async def test_a_client_in_the_middle_of_its_upload_is_told_when_its_shard_is_killed(
    groups: Groups,
    stack: contextlib.AsyncExitStack,
):
    group = start(groups)
    (session,) = ids_of_shard(2, SHARDS)
    connections = await connect_all(stack, group, [long_request(session, b"u" * 500_000)[:300_000]])
    outcomes, _ = await kill_and_read(group, "shard 2", connections)
    assert_last_words(outcomes[0], "shard 2", "SIGKILL")
    assert group.wait_exit() == 70


@pytest.mark.parametrize("option", ["", "&ch=1"], ids=["length", "chunked"])
async def test_a_reply_in_the_middle_is_cut_so_that_the_client_sees_it(
    groups: Groups, stack: contextlib.AsyncExitStack, option: str
):
    group = start(groups)
    (session,) = ids_of_shard(0, SHARDS)
    target = f"/sessions/{session}/echo?id=x&out=40000000{option}"
    connections = await connect_all(stack, group, [request_bytes("GET", target)])
    await connections[0]._read()  # the head is here, the rest waits for us
    outcomes, _ = await kill_and_read(group, "shard 0", connections)
    assert outcomes == ["cut"]
    assert group.wait_exit() == 70


async def test_undelivered_loans_are_answered_when_their_stopped_shard_is_killed(
    groups: Groups, stack: contextlib.AsyncExitStack
):
    group = start(groups)
    sessions = ids_of_shard(3, SHARDS, 60)
    group.signal("shard 3", signal.SIGSTOP)
    # 60 x 30 kB is far more than the channel's socket buffer: most stay queued in the router.
    connections = await connect_all(
        stack, group, [long_request(s, b"q" * 30_000) for s in sessions]
    )
    outcomes, _ = await kill_and_read(group, "shard 3", connections)
    for outcome in outcomes:
        assert_last_words(outcome, "shard 3", "SIGKILL")
    assert group.wait_exit() == 70


async def test_a_new_request_is_told_too_while_the_group_goes_down(
    groups: Groups, stack: contextlib.AsyncExitStack
):
    group = start(groups)
    async with open_raw(group.address) as idle:
        assert (await idle.ask(request_bytes("GET", "/sessions/a/echo?id=1"))).status == 200
        group.signal("shard 0", signal.SIGKILL)
        try:
            reply = await idle.ask(request_bytes("GET", "/sessions/a/echo?id=2"))
        except (ConnectionEndedError, ConnectionResetError, BrokenPipeError):
            pass  # it came after the end
        else:
            assert reply.status in (200, 503)
    assert group.wait_exit() == 70


async def test_the_group_goes_down_when_the_router_is_killed(
    groups: Groups, stack: contextlib.AsyncExitStack
):
    group = start(groups)
    requests = [long_request(s) for shard in range(SHARDS) for s in ids_of_shard(shard, SHARDS)]
    connections = await connect_all(stack, group, requests)
    outcomes, killed_at = await kill_and_read(group, "router", connections)
    ended_s = time.monotonic() - killed_at
    assert set(outcomes) == {"dropped"}  # the one death that no client gets a status for (rule 22)
    assert group.wait_exit() == 70
    group.wait_gone()
    gone_s = time.monotonic() - killed_at
    sys.stdout.write(f"router killed: clients ended {ended_s:.3f} s, gone {gone_s:.3f} s\n")


@pytest.mark.parametrize("shards", [1, SHARDS])
async def test_no_process_outlives_a_killed_arbiter_and_the_next_group_starts(
    groups: Groups, stack: contextlib.AsyncExitStack, shards: int
):
    group = start(groups, shards)
    connections = await connect_all(stack, group, [long_request("a")])
    group.signal("arbiter", signal.SIGKILL)
    sys.stdout.write(f"arbiter killed: all gone {group.wait_gone():.3f} s\n")
    assert await outcome_of(connections[0]) in ("dropped",)
    again = groups.start(shards=shards, app=APP, runtime_dir=group.runtime_dir)
    assert again.terminate() == 0


async def test_a_killed_lone_shard_ends_with_70(groups: Groups, stack: contextlib.AsyncExitStack):
    group = start(groups, 1)
    connections = await connect_all(stack, group, [long_request("a")])
    group.signal("shard 0", signal.SIGKILL)
    assert group.wait_exit() == 70
    assert await outcome_of(connections[0]) == "dropped"
