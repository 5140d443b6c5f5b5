"""Seeded sessions through real groups: each call at its own session, whatever comes twice or late.

The names of reference tests stand behind the tests: R-T10 and so on.
"""

from __future__ import annotations

import asyncio
import json
from collections import Counter
from collections.abc import AsyncIterator, Iterator

import pytest

from tests.support.agents import Agents, open_agents
from tests.support.group import Groups, RunningGroup, open_groups
from tests.support.mcp_clients import MODES, refusal_of, talking
from tests.support.raw import open_raw, request_bytes
from tests.support.seed_clients import (
    Client,
    close,
    cookies_of,
    post,
    post_bytes,
    refused,
    seed,
    told,
    try_seed,
)
from tests.support.topology import LONE, ROUTED_FOUR, ROUTED_TWO, Topology

APP = "tests.support.resources_app:CounterResources"
SHARDS = 2
SESSIONS = 100
AT_ONCE = 16


@pytest.fixture(scope="module", params=[LONE, ROUTED_FOUR], ids=lambda topology: topology.name)
def topology(request: pytest.FixtureRequest) -> Topology:
    found: Topology = request.param
    return found


@pytest.fixture(scope="module")
def group(topology: Topology) -> Iterator[RunningGroup]:
    with open_groups() as groups:
        yield topology.start(groups, APP)


@pytest.fixture
async def agents() -> AsyncIterator[Agents]:
    async with open_agents() as found:
        yield found


async def spread(group: RunningGroup, shards: int, name: str) -> list[Client]:
    """One session on each shard, or two on a lone one."""
    found: dict[int, Client] = {}
    for number in range(16 * shards):
        client = await seed(group, f"{name}-{number}")
        found.setdefault(client.shard if shards > 1 else number, client)
        if len(found) >= max(shards, 2):
            return list(found.values())
    raise AssertionError(f"sessions on {len(found)} of {shards} shards")


async def test_a_session_is_seeded_played_graded_and_closed_on_new_connections(
    group: RunningGroup, topology: Topology
):
    """R-T11, and the 100 sessions of R-E4."""
    room = asyncio.Semaphore(AT_ONCE)
    shards: Counter[int] = Counter()

    async def live(number: int) -> None:
        async with room:
            client = await seed(group, f"live-{number}", start=number, expected=number + 6)
            shards[client.shard] += 1
            for n in (1, 2, 3):
                assert (await client.add(n))["shard"] == client.shard
            verdict = told(await client.post("/verify"))
            assert (verdict["reward"], verdict["shard"], verdict["calls"]) == (1.0, client.shard, 3)
            assert told(await client.post("/close_session"))["status"] == "closed"
            assert refused(await client.post("/add", {"n": 1}), 410)[0] == "session_not_open"

    await asyncio.gather(*(live(number) for number in range(SESSIONS)))
    # What is over is still found, and counts no more.
    assert topology.shards == 1 or await claims_known(group, 0)
    print(f"{topology.name}: {SESSIONS} sessions on shards {sorted(shards.items())}")  # noqa: T201 - figures for -rP
    assert len(shards) == topology.shards


async def claims_known(group: RunningGroup, count: int) -> bool:
    """Whether the router comes to say that it knows so many sessions that are not over."""
    for _ in range(200):
        async with open_raw(group.address) as connection:
            page = (await connection.ask(request_bytes("GET", "/metrics"))).body.decode()
        if f"\nsessile_claims {count}.0\n" in page:
            return True
        await asyncio.sleep(0.05)
    return False


async def test_one_kept_connection_carries_calls_of_sessions_on_all_shards(
    group: RunningGroup, topology: Topology
):
    clients = await spread(group, topology.shards, "kept")
    async with open_raw(group.address) as connection:
        for round_number in range(1, 6):
            for client in clients:
                reply = await connection.ask(post_bytes("/add", {"n": 1}, client.cookie))
                assert told(reply) == {"total": round_number, "shard": client.shard}
                client.cookie = cookies_of(reply)


async def test_cookies_that_other_calls_got_are_as_good(group: RunningGroup):
    """R-T11: the bytes of a cookie change, its session does not."""
    client = await seed(group)
    cookies = [client.cookie]
    for _ in range(8):
        await client.add(1)
        cookies.append(client.cookie)
    for number, cookie in enumerate(cookies, 9):
        assert told(await post(group, "/add", {"n": 1}, cookie))["total"] == number


async def test_token_and_cookie_are_read_where_each_of_them_wins(
    group: RunningGroup, topology: Topology
):
    """R-T12."""
    first, second = (await spread(group, topology.shards, "both"))[:2]
    await first.add(1)
    await second.add(2)
    for _ in range(4):
        reply = await post(group, "/total", None, second.token)
        assert told(reply) == {"total": 2, "shard": second.shard}
        reply = await post(group, "/total", None, first.cookie | second.token)
        assert told(reply) == {"total": 1, "shard": first.shard}
    for mode in MODES:
        headers = second.token | first.cookie
        async with talking(f"{group.url}/mcp", headers, mode) as talk:
            assert len((await talk.client.list_tools()).tools) == 4
            result = await talk.client.call_tool("total", {})
            assert result.structured_content == {"total": 2, "shard": second.shard}


async def test_clients_of_mcp_play_their_own_sessions(group: RunningGroup):
    async def play(number: int) -> None:
        client = await seed(group, start=number)
        assert client.told["mcp"]["url"].endswith("/mcp")
        mode = MODES[number % len(MODES)]
        async with talking(f"{group.url}/mcp", client.token, mode) as talk:
            await talk.client.call_tool("add", {"n": 1})
            result = await talk.client.call_tool("add", {"n": 2})
            assert result.structured_content == {"total": number + 3, "shard": client.shard}
        assert told(await client.post("/verify", {"reward": 1})) == {"reward": 1.0}

    await asyncio.gather(*(play(number) for number in range(12)))


async def test_a_body_id_reaches_its_session(group: RunningGroup):
    """R-T13."""
    clients = [await seed(group, f"t13-{number}") for number in range(8)]
    for client in clients:
        await client.add(5)
    for client in clients:
        for _ in range(3):
            again = await seed(group, client.id)
            assert (again.told["seeded"], again.shard) == (1, client.shard)
            assert told(await again.post("/total"))["total"] == 5
        assert refused(await try_seed(group, client.id, start=1), 409)[0] == "seed_mismatch"
        statuses = [told(await close(group, client.id))["status"] for _ in range(3)]
        assert statuses == ["closed", "already_closed", "already_closed"]
        for _ in range(3):
            assert refused(await try_seed(group, client.id), 409)[0] == "session_released"
            assert refused(await client.post("/total"), 410)[0] == "session_not_open"


async def test_one_of_many_seeds_at_once_makes_the_session(group: RunningGroup):
    """Equal ones are answered alike, others are refused; on whichever shard they came."""
    for number in range(10):
        name = f"race-{number}"
        seeds = [try_seed(group, name, start=n % 2) for n in range(20)]
        replies = await asyncio.gather(*seeds)
        statuses = Counter(reply.status for reply in replies)
        assert statuses == {200: 10, 409: 10}, statuses
        found = [told(reply) for reply in replies if reply.status == 200]
        assert {(one["shard"], one["seeded"]) for one in found} == {(found[0]["shard"], 1)}
        assert len({one["mcp"]["headers"]["X-NeMo-Gym-Session-Token"] for one in found}) == 1
        codes = {refused(reply, 409)[0] for reply in replies if reply.status == 409}
        assert codes == {"seed_mismatch"}


async def test_seeds_and_closes_at_once_leave_it_closed_once(group: RunningGroup):
    for number in range(10):
        name = f"ends-{number}"
        asked = [try_seed(group, name) if n % 2 else close(group, name) for n in range(12)]
        replies = await asyncio.gather(*asked)
        seeds, closes = replies[1::2], replies[::2]
        ends = Counter(told(reply)["status"] for reply in closes)
        assert ends["closed"] <= 1, ends
        for reply in seeds:
            assert reply.status in (200, 409), reply.body
        if ends["never_seeded"]:
            assert ends == {"never_seeded": 6}
            assert {refused(reply, 409)[0] for reply in seeds} == {"session_released"}
        for _ in range(4):
            assert refused(await try_seed(group, name), 409)[0] == "session_released"


async def test_a_seed_that_comes_after_the_close_makes_nothing(group: RunningGroup):
    for number in range(8):
        name = f"late-{number}"
        assert told(await close(group, name))["status"] == "never_seeded"
        for _ in range(4):
            assert refused(await try_seed(group, name), 409)[0] == "session_released"
            assert told(await close(group, name))["status"] == "never_seeded"


async def test_a_release_that_fails_is_told_and_can_be_tried_again(group: RunningGroup):
    await seed(group, "stuck", stuck=2)
    for _ in range(2):
        reply = await close(group, "stuck")
        assert refused(reply, 500)[0] == "release_failed"
        assert reply.header("x-should-retry") == "true"
    assert told(await close(group, "stuck"))["status"] == "closed"


async def test_what_is_badly_signed_is_refused_everywhere_and_begins_nothing(group: RunningGroup):
    client = await seed(group)
    name, _, value = client.cookie["cookie"].partition("=")
    for bad in ("", "garbage", value[:-1], value + "x", "x" + value):
        for path in ("/total", "/verify", "/close_session"):
            for _ in range(2):
                reply = await post(group, path, None, {"cookie": f"{name}={bad}"})
                assert refused(reply, 401)[0] == "bad_session_cookie"
    (token_header,) = client.token
    for mode in MODES:
        for headers in ({}, client.cookie, {token_header: "garbage"}):
            assert (await refusal_of(f"{group.url}/mcp", headers, mode)).error.code == 401
    reply = await post(group, "/mcp", None, {token_header: "garbage"})
    assert refused(reply, 401)[0] == "bad_session_token"
    assert json.loads(reply.body)["detail"]
    assert told(await client.post("/verify", {"reward": 0})) == {"reward": 0.0}


async def test_a_header_of_episodes_means_nothing_here(group: RunningGroup):
    """R-T14."""
    client = await seed(group)
    for number in range(1, 9):
        headers = client.cookie | {"X-NeMo-Gym-Episode-Token": "some", "mcp-session-id": "m"}
        reply = await post(group, "/add", {"n": 1}, headers)
        assert told(reply) == {"total": number, "shard": client.shard}


async def test_a_rollout_is_stopped_on_its_shard_and_graded(
    group: RunningGroup, topology: Topology
):
    """R-T16."""
    clients = [await seed(group, rollout_id=f"stop-{n}", attempt=n % 2) for n in range(8)]
    for number, client in enumerate(clients):
        path = f"/ng-rollout/stop-{number}{'-a1' if number % 2 else ''}/stop"
        others_cookie = clients[number - 1].cookie  # a client's jar may hold another session's
        assert told(await post(group, path, None, others_cookie))["status"] == "stopped"
        assert told(await post(group, path))["status"] == "already_stopped"
        code, message = refused(await client.post("/add", {"n": 1}), 410)
        assert (code, "its rollout was stopped" in message) == ("session_not_open", True)
        verdict = told(await client.post("/verify"))
        assert (verdict["reward"], verdict["is_stopped"]) == (1.0, True)
        for other in clients[number + 1 :]:
            assert (await other.add(0))["shard"] == other.shard
        await client.post("/close_session")
        assert refused(await post(group, path), 410)[0] == "episode_not_running"
    assert refused(await post(group, "/ng-rollout/never/stop"), 410)[0] == "episode_not_running"


@pytest.mark.parametrize("shape", [LONE, ROUTED_TWO], ids=lambda shape: shape.name)
async def test_an_episode_is_stopped_on_its_shard_and_graded(
    groups: Groups, agents: Agents, shape: Topology
):
    """R-T16: of a tool environment; a call whose path looks like a stop goes by its token."""
    group = shape.start(groups, "examples.counter_env:CounterEnvironment")
    played = [await agents.begin(group.url, f"r{n}") for n in range(2 * shape.shards)]
    shards = [(await episode.add(3))["shard"] for episode in played]
    assert len(set(shards)) == shape.shards
    for number, episode in enumerate(played):
        path = f"/ng-rollout/r{number}/stop"
        for other in played:
            if other is not episode:  # by its token: to where that one alone can be stopped
                assert refused(await post(group, path, None, other.headers), 410)
        assert (await episode.add(0))["total"] == 3
        assert told(await post(group, path))["rollout"] == f"r{number}"
        for _ in range(2):
            gone = await episode.call("add", arguments={"n": 1})
            assert (gone.status_code, gone.json()["error"]["code"]) == (410, "episode_not_running")
    for episode in played:
        result = await episode.end()
        assert (result["total"], result["agent_status"]) == (3, 200)
    assert refused(await post(group, "/ng-rollout/r0/stop"), 410)[0] == "episode_not_running"


async def test_an_episodes_token_wins_over_a_sessions_cookie(groups: Groups, agents: Agents):
    """R-T10, R-T15."""
    group = groups.start(shards=SHARDS, app="tests.support.both_app:BothEnvironment")
    clients = await spread(group, SHARDS, "t10")
    episode = await agents.begin(group.url, "t10")
    shard = (await episode.add(0))["shard"]
    for client in clients:
        headers = episode.headers | client.cookie | client.token
        for _ in range(2):
            reply = await post(group, "/tools/add", {"n": 1}, headers)
            assert told(reply)["shard"] == shard
        assert (await client.add(1)) == {"total": 1, "shard": client.shard}
    assert (await episode.end())["total"] == 2 * SHARDS
