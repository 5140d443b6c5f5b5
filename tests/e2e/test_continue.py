"""The `continue` policy: a shard dies, its sessions are gone, all others go on (design 2.3, 6)."""

from __future__ import annotations

import asyncio
import contextlib
import json
import signal
from collections.abc import AsyncIterator

import pytest

from tests.support.apps import pattern_of
from tests.support.group import Groups, RunningGroup
from tests.support.ids import ids_of_shard
from tests.support.raw import AsyncRawConnection, open_raw, request_bytes
from tests.support.replies import Reply, ReplyCutError
from tests.support.waiting import wait_until

SHARDS = 3
DEAD = 1
CONTINUE = {"SESSIONS_ON_SHARD_EXIT": "continue"}


@pytest.fixture
def group(groups: Groups) -> RunningGroup:
    return groups.start(shards=SHARDS, app="tests.support.apps:cases", env=CONTINUE)


@pytest.fixture
async def stack() -> AsyncIterator[contextlib.AsyncExitStack]:
    async with contextlib.AsyncExitStack() as opened:
        yield opened


def session_of(shard: int) -> str:
    return ids_of_shard(shard, SHARDS)[0]


async def send(
    stack: contextlib.AsyncExitStack, group: RunningGroup, data: bytes
) -> AsyncRawConnection:
    connection = await stack.enter_async_context(open_raw(group.address))
    await connection.send(data)
    return connection


def kill(group: RunningGroup, number: signal.Signals = signal.SIGKILL) -> None:
    group.signal(f"shard {DEAD}", number)


async def wait_degraded(group: RunningGroup) -> None:
    while True:
        async with open_raw(group.address) as probe:
            reply = await probe.ask(request_bytes("GET", "/readyz"))
        assert reply.status == 200
        if json.loads(reply.body)["status"] == "degraded":
            return
        await asyncio.sleep(0.01)


def error_of(reply: Reply) -> tuple[int, str, str | None]:
    error = json.loads(reply.body)["error"]
    return reply.status, error["code"], reply.header("x-should-retry")


async def test_the_dead_shards_exchanges_get_their_status_and_the_others_go_on(
    group: RunningGroup, stack: contextlib.AsyncExitStack
):
    waiting = f"/sessions/{session_of(DEAD)}/echo?id=w&sleep=60"
    elsewhere = f"/sessions/{session_of(0)}/echo?id=e&sleep=1&out=50"
    named = await send(stack, group, request_bytes("POST", waiting, body=b"x"))
    other = await send(stack, group, request_bytes("POST", elsewhere, body=b"y"))
    kept = await send(stack, group, request_bytes("GET", f"/sessions/{session_of(DEAD)}/echo?id=k"))
    assert (await kept.read_reply()).status == 200
    async with open_raw(group.address) as after:  # so its shard has given `kept` back by now
        target = f"/sessions/{session_of(DEAD)}/echo?id=a"
        assert (await after.ask(request_bytes("GET", target))).status == 200
    kill(group)
    assert error_of(await named.read_reply()) == (410, "shard_gone", "false")
    assert (await other.read_reply()).body == pattern_of("e", 50)
    # a connection with a copy parked in the dead shard serves the others on
    later = await kept.ask(request_bytes("GET", f"/sessions/{session_of(2)}/echo?id=l&out=9"))
    assert later.body == pattern_of("l", 9)
    gone = await kept.ask(request_bytes("GET", f"/sessions/{session_of(DEAD)}/echo?id=g"))
    assert error_of(gone) == (410, "shard_gone", "false")
    await wait_degraded(group)


async def test_requests_without_a_session_get_502_in_flight_and_live_shards_later(
    group: RunningGroup, stack: contextlib.AsyncExitStack
):
    # One of as many as there are shards lands on each.
    waiting = [
        await send(stack, group, request_bytes("GET", f"/plain/echo?id=p{n}&sleep=2&out=4"))
        for n in range(SHARDS)
    ]
    await asyncio.sleep(0)
    async with open_raw(group.address) as probe:
        await probe.ask(request_bytes("GET", "/healthz"))
    kill(group)
    outcomes = [await connection.read_reply() for connection in waiting]
    assert sorted(reply.status for reply in outcomes) == [200, 200, 502]
    failed = next(reply for reply in outcomes if reply.status == 502)
    assert error_of(failed) == (502, "shard_died", "false")
    await wait_degraded(group)
    for number in range(12):
        async with open_raw(group.address) as connection:
            reply = await connection.ask(request_bytes("GET", f"/plain/echo?id={number}&out=3"))
        assert reply.body == pattern_of(str(number), 3)


async def test_a_reply_in_the_middle_is_cut(group: RunningGroup, stack: contextlib.AsyncExitStack):
    target = f"/sessions/{session_of(DEAD)}/echo?id=c&out=40000000"
    connection = await send(stack, group, request_bytes("GET", target))
    await connection._read()
    kill(group)
    with pytest.raises(ReplyCutError):
        await connection.read_reply()


async def test_undelivered_requests_without_a_session_are_served_elsewhere(
    group: RunningGroup, stack: contextlib.AsyncExitStack
):
    kill(group, signal.SIGSTOP)
    # Heads so large that the channel's socket buffer holds a few: most loans stay in the router.
    filler = [("X-Filler", "q" * 30_000)]
    blockers = [
        await send(
            stack,
            group,
            request_bytes("GET", f"/sessions/{session_id}/echo?id=b&sleep=60", filler),
        )
        for session_id in ids_of_shard(DEAD, SHARDS, 30)
    ]
    for _ in range(5):  # the router goes round: what was sent before is read
        async with open_raw(group.address) as probe:
            await probe.ask(request_bytes("GET", "/livez"))
    plain = [
        await send(stack, group, request_bytes("GET", f"/plain/echo?id=u{n}&out=6"))
        for n in range(9)
    ]
    kill(group)
    for number, connection in enumerate(plain):
        assert (await connection.read_reply()).body == pattern_of(f"u{number}", 6)
    for connection in blockers:
        assert error_of(await connection.read_reply())[0] == 410


def test_the_group_stops_cleanly_after_a_death_and_respawns_nobody(group: RunningGroup):
    kill(group)
    wait_until(lambda: "the group goes on without it" in group.log(), "the arbiter noticed")
    assert group.log().count("Booting worker") == SHARDS + 1
    assert group.terminate() == 0
    assert group.log().count("Booting worker") == SHARDS + 1


def test_the_group_halts_with_its_last_shard(group: RunningGroup):
    for shard in range(SHARDS):
        group.signal(f"shard {shard}", signal.SIGKILL)
    assert group.wait_exit() == 70


def test_the_routers_death_halts(group: RunningGroup):
    group.signal("router", signal.SIGKILL)
    assert group.wait_exit() == 70
