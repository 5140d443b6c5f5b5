"""Seeded sessions whose shard dies, that expire, and what calls would do without claims."""

from __future__ import annotations

import asyncio
import signal
from collections import Counter
from pathlib import Path

from tests.support.group import Groups, RunningGroup
from tests.support.mcp_clients import MODES, refusal_of
from tests.support.seed_clients import Client, close, post, refused, seed, told, try_seed
from tests.support.waiting import DeadlineError

APP = "tests.support.resources_app:CounterResources"
SHARDS = 4
UNCLAIMED = Path(__file__).parent.parent / "support" / "unclaimed_conf.py"
LOOKS = 200


async def wait_died(client: Client) -> None:
    """Until the router knows; a call that is in flight at the death is answered as well.

    Raises:
        DeadlineError: It did not come to know.
    """
    for _ in range(LOOKS):
        reply = await post(client.group, "/total", None, client.cookie)
        if reply.status == 410:
            return
        await asyncio.sleep(0.01)
    raise DeadlineError("the death of a shard")


async def test_a_dead_shards_sessions_are_gone_and_all_others_go_on(groups: Groups):
    """R-T29, R-T31, R-T33."""
    group = groups.start(shards=SHARDS, app=APP)
    clients = [await seed(group, f"s{n}", rollout_id=f"r{n}") for n in range(24)]
    dead = clients[0].shard
    lost = [client for client in clients if client.shard == dead]
    kept = [client for client in clients if client.shard != dead]
    ended = [await seed(group) for _ in range(2 * SHARDS)]
    for client in ended:
        await close(group, client.id)
    group.signal(f"shard {dead}", signal.SIGKILL)
    await wait_died(lost[0])
    for client in lost:
        asked = [
            post(group, "/add", {"n": 1}, client.cookie),
            post(group, "/total", None, client.token),
            post(group, "/verify", None, client.cookie),
            post(group, "/close_session", None, client.cookie),
            post(group, "/mcp", None, client.token),
            post(group, f"/ng-rollout/r{client.id[1:]}/stop"),
            close(group, client.id),
            try_seed(group, client.id, rollout_id=f"r{client.id[1:]}"),
        ]
        for reply in await asyncio.gather(*asked):
            code, message = refused(reply, 410)
            assert (code, "no longer running" in message) == ("shard_gone", True)
    for mode in MODES:
        error = (await refusal_of(f"{group.url}/mcp", lost[0].token, mode)).error
        assert (error.code, "no longer running" in error.message) == (410, True)
    for client in kept:
        assert await client.add(1) == {"total": 1, "shard": client.shard}
        assert told(await client.post("/close_session"))["status"] == "closed"
    fresh = [await seed(group) for _ in range(2 * SHARDS)]
    assert dead not in {client.shard for client in fresh}
    for client in fresh:
        assert (await client.add(2))["total"] == 2
    for client in ended:
        status = 410 if client.shard == dead else 200
        assert (await close(group, client.id)).status == status


async def test_a_session_that_nobody_uses_expires_and_says_so_everywhere(groups: Groups):
    env = {"SESSIONS_SESSION_TTL_S": "1"}
    group = groups.start(shards=2, app=APP, env=env)
    clients = [await seed(group, f"s{n}") for n in range(4)]
    used, *unused = clients
    await wait_expired(group, unused, used)
    assert told(await used.post("/total"))["shard"] == used.shard


async def wait_expired(group: RunningGroup, unused: list[Client], used: Client) -> None:
    for client in unused:
        for _ in range(LOOKS):
            await used.add(1)
            code, _ = refused(await try_seed(group, client.id, other=True), 409)
            if code == "session_released":  # asking for another payload is no use of it
                break
            await asyncio.sleep(0.02)
        code, message = refused(await client.post("/total"), 410)
        assert (code, "it expired" in message) == ("session_not_open", True)
        assert told(await close(group, client.id))["status"] == "already_closed"


async def test_without_claims_calls_miss_their_session(groups: Groups):
    """R-E6: the tests of sessions would not pass with the look-up of claims switched off."""
    group = groups.start(shards=SHARDS, app=APP, conf=UNCLAIMED)
    statuses: Counter[int] = Counter()
    seeds: Counter[str] = Counter()
    rewards: Counter[float | None] = Counter()

    async def live(number: int) -> None:
        client = await seed(group, f"s{number}", expected=8)
        cookie = client.cookie
        for _ in range(8):
            statuses[(await post(group, "/add", {"n": 1}, cookie)).status] += 1
        again = await try_seed(group, client.id, expected=8)
        is_there = again.status == 200 and told(again)["shard"] == client.shard
        seeds["answered by the first" if is_there else "not"] += 1
        verdict = await post(group, "/verify", None, cookie)
        rewards[told(verdict)["reward"] if verdict.status == 200 else None] += 1

    await asyncio.gather(*(live(number) for number in range(16)))
    print(  # noqa: T201 - figures for -rP
        f"with the look-up of claims off: {dict(statuses)} of {16 * 8} calls,"
        f" seeds sent again {dict(seeds)}, rewards {dict(rewards)} of 16"
    )
    assert set(statuses) == {200, 410}
    assert statuses[410] > 16 * 8 // 2
    assert seeds["not"] > 4
    assert rewards[1.0] < 4
