"""Claims through real groups: visible at once, exclusive, dead with their shard, then gone."""

from __future__ import annotations

import asyncio
import contextlib
import json
import re
import signal
from collections import Counter
from pathlib import Path

import pytest

from tests.support.group import Groups, RunningGroup
from tests.support.raw import open_raw, request_bytes
from tests.support.replies import Reply
from tests.support.waiting import wait_until_async

SHARDS = 4
APP = "tests.support.claiming_app:ClaimingApp"
VISITED = "tests.support.claiming_app:VisitedApp"
CONTINUE = {"SESSIONS_ON_SHARD_EXIT": "continue"}
UNCLAIMED = Path(__file__).parent.parent / "support" / "unclaimed_conf.py"
AT_ONCE = 16
CONTINUED = b"HTTP/1.1 100 Continue\r\n\r\n"


async def ask(group: RunningGroup, path: str, **headers: str) -> Reply:
    """One request on a new connection."""
    sent = [("x-" + name, value) for name, value in headers.items()]
    async with open_raw(group.address) as connection:
        return await connection.ask(request_bytes("POST", path, sent))


def told(reply: Reply) -> dict[str, int]:
    """The body of a 200."""
    assert reply.status == 200, reply.body
    found: dict[str, int] = json.loads(reply.body)
    return found


def error_of(reply: Reply) -> tuple[int, str, str]:
    error = json.loads(reply.body)["error"]
    return reply.status, error["code"], error["message"]


async def claim(group: RunningGroup, name: str) -> int:
    """Claim; the process that holds it."""
    return told(await ask(group, "/claim", key=name))["pid"]


async def claims_known(group: RunningGroup) -> int:
    """How many live claims the router says it knows, at most a second ago."""
    async with open_raw(group.address) as connection:
        page = (await connection.ask(request_bytes("GET", "/metrics"))).body.decode()
    found = re.search(r"^sessile_claims (\d+)", page, re.MULTILINE)
    assert found is not None
    return int(found[1])


async def wait_claims(group: RunningGroup, count: int) -> None:
    for _ in range(200):
        if await claims_known(group) == count:
            return
        await asyncio.sleep(0.05)
    pytest.fail(f"{await claims_known(group)} claims after 10 s, not {count}")


async def live_claims(group: RunningGroup, count: int) -> tuple[Counter[int], Counter[int]]:
    """Claim, call at once and twice more, release, call again; AT_ONCE at a time.

    Returns:
        Claims per process, and calls that were answered wrongly by their statuses.
    """
    holders: Counter[int] = Counter()
    wrong: Counter[int] = Counter()
    room = asyncio.Semaphore(AT_ONCE)

    async def live(name: str) -> None:
        async with room:
            holder = await claim(group, name)
            holders[holder] += 1
            for number in range(3):
                reply = await ask(group, "/call", claim=name)
                if reply.status != 200 or told(reply) != {"pid": holder, "count": number + 1}:
                    wrong[reply.status] += 1
            reply = await ask(group, "/release", claim=name)
            after = await ask(group, "/call", claim=name)
            if after.status != 410 or b"not running on this server" not in after.body:
                wrong[after.status] += 1

    await asyncio.gather(*(live(f"session-{number}") for number in range(count)))
    return holders, wrong


@pytest.mark.timeout(180)
@pytest.mark.parametrize(("shards", "count"), [(2, 200), (SHARDS, 1000)])
async def test_a_claim_is_visible_before_it_returns(groups: Groups, shards: int, count: int):
    group = groups.start(shards=shards, app=APP)
    holders, wrong = await live_claims(group, count)
    print(f"shards={shards} claims={count} per shard={sorted(holders.values())} wrong={wrong}")  # noqa: T201 - figures for -rP
    assert not wrong
    assert len(holders) == shards
    assert min(holders.values()) > count / shards / 2
    await wait_claims(group, 0)


async def test_the_same_calls_fail_with_the_look_up_switched_off(groups: Groups):
    group = groups.start(shards=SHARDS, app=APP, conf=UNCLAIMED)
    _, wrong = await live_claims(group, 40)
    print(f"with claims off: 120 calls, wrong={wrong}")  # noqa: T201 - figures for -rP
    assert wrong.total() > 40


async def test_a_lone_shard_answers_the_same(groups: Groups):
    group = groups.start(shards=1, app=APP)
    holders, wrong = await live_claims(group, 50)
    assert not wrong
    assert list(holders.values()) == [50]
    await claim(group, "a")
    assert error_of(await ask(group, "/claim", key="a"))[:2] == (409, "duplicate_claim")
    assert told(await ask(group, "/call", claim="a"))["count"] == 1


async def test_a_duplicate_is_refused_on_every_shard_while_the_first_survives(groups: Groups):
    group = groups.start(shards=SHARDS, app=APP)
    holder = await claim(group, "a")
    for number in range(2 * SHARDS):  # they go to the shards in turn, the holder's among them
        reply = await ask(group, "/claim", key="a")
        assert error_of(reply)[:2] == (409, "duplicate_claim")
        assert reply.header("x-should-retry") is None  # the application's own headers
        assert told(await ask(group, "/call", claim="a")) == {"pid": holder, "count": number + 1}
    told(await ask(group, "/release", claim="a"))
    await claim(group, "a")


async def test_exactly_one_of_many_claimants_wins(groups: Groups):
    group = groups.start(shards=SHARDS, app=APP)
    for number in range(10):
        name = f"race-{number}"
        replies = await asyncio.gather(*(ask(group, "/claim", key=name) for _ in range(20)))
        assert Counter(reply.status for reply in replies) == {200: 1, 409: 19}
        (winner,) = [told(reply)["pid"] for reply in replies if reply.status == 200]
        assert told(await ask(group, "/call", claim=name))["pid"] == winner


async def test_sessions_that_last_are_spread_evenly_over_one_kept_connection(groups: Groups):
    """Each is claimed before the next one comes, so the router knows of all."""
    group = groups.start(shards=SHARDS, app=APP)
    holders: Counter[int] = Counter()
    async with open_raw(group.address) as client:
        for number in range(82):
            request = request_bytes("POST", "/claim", [("x-key", f"kept-{number}")])
            holders[told(await client.ask(request))["pid"]] += 1
    assert sorted(holders.values()) == [20, 20, 21, 21]


async def test_requests_that_open_nothing_go_to_the_shards_in_turn(groups: Groups):
    group = groups.start(shards=SHARDS, app=APP)
    async with open_raw(group.address) as client:
        where = [told(await client.ask(request_bytes("GET", "/where")))["pid"] for _ in range(40)]
    assert Counter(where) == Counter(dict.fromkeys(shard_pids(group), 10))


async def test_only_the_holder_releases(groups: Groups):
    group = groups.start(shards=SHARDS, app=APP)
    holder = await claim(group, "a")
    socket_of = {pid: index for index, pid in enumerate(shard_pids(group))}
    other = (socket_of[holder] + 1) % SHARDS
    address = str(group.runtime_dir / f"shard-{other}.sock")
    async with open_raw(address) as operator:  # past the router
        told(await operator.ask(request_bytes("POST", "/release", [("x-claim", "a")])))
    assert told(await ask(group, "/call", claim="a")) == {"pid": holder, "count": 1}
    assert (await ask(group, "/claim", key="a")).status == 409


def shard_pids(group: RunningGroup) -> list[int]:
    return [group.pids[f"shard {index}"] for index in range(SHARDS)]


async def test_dead_claims_are_answered_by_the_router_until_they_are_taken_again(groups: Groups):
    group = groups.start(shards=SHARDS, app=APP, env=CONTINUE)
    names = [f"session-{number}" for number in range(40)]
    holders = {name: await claim(group, name) for name in names}
    dead = shard_pids(group)[2]
    lost = [name for name in names if holders[name] == dead]
    kept = [name for name in names if holders[name] != dead]
    assert lost
    assert kept
    group.signal("shard 2", signal.SIGKILL)

    async def is_told(name: str) -> bool:
        reply = await ask(group, "/call", claim=name)
        assert reply.status == 410, reply.body
        assert b"no longer running" in reply.body
        return True

    await wait_until_async(lambda: not alive(dead), "the shard to die")
    await asyncio.gather(*(is_told(name) for name in lost))
    for name in kept:
        assert told(await ask(group, "/call", claim=name)) == {"pid": holders[name], "count": 1}
    again = {name: await claim(group, name) for name in lost}
    assert dead not in again.values()
    for name, holder in again.items():
        assert told(await ask(group, "/call", claim=name)) == {"pid": holder, "count": 1}
    for name in names:
        told(await ask(group, "/release", claim=name))
        assert error_of(await ask(group, "/call", claim=name))[1] == "episode_not_running"
    await wait_claims(group, 0)


async def test_a_tool_environment_goes_on_without_being_told_and_others_halt(groups: Groups):
    going = groups.start(shards=2, app="examples.counter_env:CounterEnvironment")
    halting = groups.start(shards=2, app=APP)
    for group in (going, halting):
        group.signal("shard 1", signal.SIGKILL)
    assert halting.wait_exit() == 70
    for _ in range(200):
        async with open_raw(going.address) as connection:
            ready = await connection.ask(request_bytes("GET", "/readyz"))
        assert ready.status == 200
        if b"degraded" in ready.body:
            return
        await asyncio.sleep(0.02)
    pytest.fail("not degraded after 4 s")


# --- sessions that only a body names (rule 14)


def seed_of(name: str, path: str = "/seed", pad_bytes: int = 0, chunk_bytes: int = 0) -> bytes:
    body = json.dumps({"id": name, "pad": "x" * pad_bytes}).encode()
    return request_bytes("POST", path, body=body, chunk_bytes=chunk_bytes)


async def ask_raw(group: RunningGroup, request: bytes, split_at: int = 0) -> Reply:
    """One request on a new connection, in two pieces."""
    async with open_raw(group.address) as connection:
        if split_at:
            await connection.send(request[:split_at])
            await asyncio.sleep(0.02)
        await connection.send(request[split_at:])
        return await connection.read_reply()


@pytest.mark.parametrize("shards", [1, SHARDS])
async def test_a_session_that_bodies_name_is_opened_once_and_closed_where_it_is(
    groups: Groups, shards: int
):
    group = groups.start(shards=shards, app=APP)
    for number in range(20):
        name = f"body-{number}"
        pads = [0, 0, 1000, 40_000, 0, 0]
        replies = [
            told(await ask_raw(group, seed_of(name, pad_bytes=pad, chunk_bytes=chunk), split))
            for pad, chunk, split in zip(
                pads, [0, 0, 0, 0, 7, 9], [0, 60, 90, 2000, 0, 110], strict=True
            )
        ]
        assert [reply["was_open"] for reply in replies] == [False] + 5 * [True]
        assert len({reply["pid"] for reply in replies}) == 1
        assert told(await ask(group, "/call", claim=name))["pid"] == replies[0]["pid"]
        closed = told(await ask_raw(group, seed_of(name, "/close")))
        assert (closed["was_open"], closed["pid"]) == (True, replies[0]["pid"])
        assert not told(await ask_raw(group, seed_of(name, "/close")))["was_open"]
    if shards > 1:
        await wait_claims(group, 0)


async def test_a_kept_connection_carries_requests_that_go_back_and_others(groups: Groups):
    group = groups.start(shards=SHARDS, app=APP)
    names = [f"kept-{number}" for number in range(8)]
    holders = {name: told(await ask_raw(group, seed_of(name)))["pid"] for name in names}
    assert len(set(holders.values())) > 1
    where = request_bytes("GET", "/where")
    async with open_raw(group.address) as connection:
        for _ in range(5):
            for name in names:  # in one piece: what is read behind the body goes along
                await connection.send(seed_of(name) + where)
                seeded = told(await connection.read_reply())
                assert (seeded["pid"], seeded["was_open"]) == (holders[name], True)
                assert told(await connection.read_reply())["pid"] in shard_pids(group)
        for name in names:
            request = seed_of(name)
            head_end = request.index(b"\r\n\r\n")
            head = request[:head_end] + b"\r\nExpect: 100-continue\r\n\r\n"
            await connection.send(head)
            received = await asyncio.get_running_loop().sock_recv(connection.socket, len(CONTINUED))
            assert received == CONTINUED
            await connection.send(request[head_end + 4 :])
            assert told(await connection.read_reply())["pid"] == holders[name]


async def test_a_body_that_names_a_session_of_a_dead_shard_is_answered_by_the_router(
    groups: Groups,
):
    group = groups.start(shards=SHARDS, app=APP, env=CONTINUE)
    names = [f"dead-{number}" for number in range(24)]
    holders = {name: told(await ask_raw(group, seed_of(name)))["pid"] for name in names}
    dead = shard_pids(group)[1]
    assert dead in holders.values()
    group.signal("shard 1", signal.SIGKILL)
    await wait_until_async(lambda: not alive(dead), "the shard to die")
    for name, holder in holders.items():
        reply = await ask_raw(group, seed_of(name))
        if holder == dead:
            assert reply.status == 410
            assert b"no longer running" in reply.body
        else:
            assert told(reply)["was_open"]


async def race(group: RunningGroup, request: bytes, clients: int = 20) -> list[dict[str, int]]:
    """The replies to clients that send the same request at once, each on its own connection."""
    async with contextlib.AsyncExitStack() as stack:
        connections = [
            await stack.enter_async_context(open_raw(group.address)) for _ in range(clients)
        ]
        replies = await asyncio.gather(*(client.ask(request) for client in connections))
    return [told(reply) for reply in replies]


@pytest.mark.parametrize("by", ["body", "cookie"])
@pytest.mark.parametrize("shards", [1, SHARDS])
async def test_many_that_open_a_session_at_once_meet_in_one(groups: Groups, shards: int, by: str):
    group = groups.start(shards=shards, app=APP if by == "body" else VISITED)
    opened: dict[int, int] = {}
    for number in range(20):
        name = f"met-{number}"
        visit = request_bytes("POST", "/visit", [("Cookie", f"sid={name}")])
        replies = await race(group, seed_of(name) if by == "body" else visit)
        assert len({reply["pid"] for reply in replies}) == 1
        assert sorted(reply["was_open"] for reply in replies) == [False] + 19 * [True]
        pid = replies[0]["pid"]
        opened[pid] = opened.get(pid, 0) + 1
        assert {reply["opened"] for reply in replies} == {opened[pid]}
    assert len(opened) > (shards > 1)


@pytest.mark.parametrize("shards", [1, SHARDS])
async def test_cookies_in_several_lines_find_their_session(groups: Groups, shards: int):
    group = groups.start(shards=shards, app=VISITED)
    seen: set[int] = set()
    for number in range(2 * SHARDS):
        cookie = ("Cookie", f"sid=apart-{number}")
        others = [("Cookie", "a=b"), ("Cookie", "sid=")]
        replies = [
            told(await ask_raw(group, request_bytes("POST", "/visit", lines)))
            for lines in ([cookie], [others[0], cookie], [*others, cookie], [cookie, others[0]])
        ]
        assert [reply["was_open"] for reply in replies] == [False, True, True, True]
        assert len({reply["pid"] for reply in replies}) == 1
        seen.add(replies[0]["pid"])
    assert len(seen) == shards


@pytest.mark.parametrize("shards", [1, SHARDS])
async def test_two_different_names_in_one_header_are_refused(groups: Groups, shards: int):
    group = groups.start(shards=shards, app=APP)
    holders = {name: await claim(group, name) for name in ("a", "b")}
    for both in (("a", "b"), ("b", "a"), ("a", "a"), ("a", "none")):
        lines = [("x-claim", name) for name in both]
        reply = await ask_raw(group, request_bytes("POST", "/call", lines))
        if both == ("a", "a"):
            assert told(reply)["pid"] == holders["a"]
        else:
            assert error_of(reply)[:2] == (400, "bad_session_id")
            assert json.loads(reply.body)["error"]["param"] == "x-claim"


async def test_a_session_that_is_opened_again_and_again_is_never_refused(groups: Groups):
    """Seeds race with closes: whoever comes late opens it anew, where it was or elsewhere."""
    group = groups.start(shards=SHARDS, app=APP)
    statuses: Counter[int] = Counter()

    async def ask_often(number: int) -> None:
        async with open_raw(group.address) as client:
            for turn in range(40):
                path = "/seed" if (turn + number) % 3 else "/close"
                statuses[(await client.ask(seed_of("again", path))).status] += 1

    await asyncio.gather(*(ask_often(number) for number in range(12)))
    assert statuses == {200: 480}


async def test_a_body_that_names_nothing_is_served_where_it_came(groups: Groups):
    group = groups.start(shards=2, app="tests.support.claiming_app:EchoApp")
    bodies = [b"", b"{", b"[]", b'{"id": 1}', b'{"id": ""}', b"x" * 70_000, b'{"id":"y"}' * 9000]
    for body in bodies:
        for chunk_bytes in (0, 5000):
            request = request_bytes("POST", "/seed", body=body, chunk_bytes=chunk_bytes)
            reply = await ask_raw(group, request)
            assert (reply.status, reply.body) == (200, body)


def alive(pid: int) -> bool:
    return Path(f"/proc/{pid}/stat").exists() and not is_zombie(pid)


def is_zombie(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z"
    except FileNotFoundError:
        return True
