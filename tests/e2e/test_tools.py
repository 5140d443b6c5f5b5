"""Episode tools through real groups: each call at its own episode, refusals, every way to the end.

The names of reference tests stand behind the tests: R-T1 and so on.
"""

from __future__ import annotations

import asyncio
import json
from collections import Counter
from collections.abc import AsyncIterator, Iterator
from typing import Any

import httpx
import pytest

from sessions.routing.episode_tokens import sign_episode_token
from tests.support.agents import Agents, Played, open_agents
from tests.support.group import Groups, RunningGroup, open_groups
from tests.support.raw import open_raw, request_bytes
from tests.support.topology import LONE, ROUTED_FOUR, Topology
from tests.support.waiting import wait_until_async

APP = "examples.counter_env:CounterEnvironment"
HEADER = "X-NeMo-Gym-Episode-Token"


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


def error_of(reply: httpx.Response, status: int) -> dict[str, Any]:
    assert reply.status_code == status, reply.text
    assert reply.headers["content-type"] == "application/json"
    assert reply.headers["x-should-retry"] == ("true" if status == 503 else "false")
    assert "www-authenticate" not in reply.headers
    error: dict[str, Any] = reply.json()["error"]
    return error


async def begin_many(agents: Agents, group: RunningGroup, name: str, count: int) -> list[Played]:
    begun = [agents.begin(group.url, f"{name}-{number}") for number in range(count)]
    return await asyncio.gather(*begun)


async def test_every_call_on_a_new_connection_reaches_the_episodes_shard(
    group: RunningGroup, agents: Agents
):
    """R-T1, R-T9."""
    played = await agents.begin(group.url, "t1")
    found = [await played.add(1) for _ in range(100)]
    assert [reply["total"] for reply in found] == list(range(1, 101))
    assert len({reply["shard"] for reply in found}) == 1
    result = await played.end()
    assert (result["total"], result["agent_status"]) == (100, 200)
    assert [call["result"]["total"] for call in result["calls"]] == list(range(1, 101))


async def test_interleaved_episodes_keep_their_own_state_on_several_shards(
    group: RunningGroup, topology: Topology, agents: Agents
):
    """R-T2, R-T3, R-T6 and a small R-E1."""
    episodes = await begin_many(agents, group, "t2", 40)
    shards: Counter[int] = Counter()
    for round_number in range(1, 9):
        replies = await asyncio.gather(*[e.add(i) for i, e in enumerate(episodes)])
        assert [reply["total"] for reply in replies] == [i * round_number for i in range(40)]
        shards.update(reply["shard"] for reply in replies)
    assert min(len(shards), 2) == min(topology.shards, 2), "over several shards"
    results = await asyncio.gather(*[episode.end() for episode in episodes])
    assert [len(result["calls"]) for result in results] == [8] * 40


async def test_one_kept_connection_carries_calls_of_many_episodes(
    group: RunningGroup, agents: Agents
):
    """R-T4."""
    episodes = await begin_many(agents, group, "t4", 8)
    seen: dict[int, set[int]] = {number: set() for number in range(8)}
    async with open_raw(group.address) as connection:
        for round_number in range(1, 6):
            for number, episode in enumerate(episodes):
                headers = list(episode.headers.items())
                request = request_bytes("POST", "/tools/add", headers, b'{"n":1}')
                reply = await connection.ask(request)
                told = json.loads(reply.body)
                assert (reply.status, told["total"]) == (200, round_number)
                seen[number].add(told["shard"])
    assert [len(shards) for shards in seen.values()] == [1] * 8
    await asyncio.gather(*[episode.end() for episode in episodes])


async def test_simultaneous_calls_of_one_episode_run_once_each(group: RunningGroup, agents: Agents):
    """R-T5."""
    played = await agents.begin(group.url, "t5")
    replies = await asyncio.gather(*[played.add(1) for _ in range(100)])
    assert sorted(reply["total"] for reply in replies) == list(range(1, 101))
    result = await played.end()
    assert (result["total"], len(result["calls"])) == (100, 100)


async def test_a_refused_call_runs_nothing(group: RunningGroup, agents: Agents):
    """R-T17, R-T22."""
    played = await agents.begin(group.url, "t17")
    token = played.headers[HEADER]
    flipped = token[:-1] + ("A" if token[-1] != "A" else "B")
    other_run = sign_episode_token(b"o" * 32, "t17", "nonce")
    for given in (None, "garbage", token[:-5], flipped, token[5:], other_run, token + "x"):
        for _ in range(4):
            headers = {} if given is None else {HEADER: given}
            reply = await played.call("add", headers=headers, arguments={"n": 1})
            assert error_of(reply, 401)["code"] == "bad_episode_token"
    for arguments in ({}, {"n": "1"}, {"n": 1, "m": 1}, {"m": 1}):
        reply = await played.call("add", arguments=arguments)
        assert error_of(reply, 422)["code"] == "bad_tool_arguments"
    assert error_of(await played.call("sub"), 404)["code"] == "unknown_tool"
    assert (await played.call("total")).json()["total"] == 0
    assert [call["name"] for call in (await played.end())["calls"]] == ["total"]


async def test_a_call_that_is_refused_by_its_head_is_not_asked_for_its_body(
    group: RunningGroup, agents: Agents
):
    played = await agents.begin(group.url, "expects")
    for headers, name, status in (({}, "add", 401), (played.headers, "sub", 404)):
        sent = [*headers.items(), ("expect", "100-continue"), ("content-length", "7")]
        head = request_bytes("GET", f"/tools/{name}", sent).replace(b"GET", b"POST", 1)
        async with open_raw(group.address) as connection:
            reply = await connection.ask(head)
        assert (reply.status, reply.interim) == (status, [])
    await played.end()


async def test_the_token_of_an_earlier_run_is_refused_and_harms_nothing(
    group: RunningGroup, agents: Agents
):
    """R-T18, R-T24."""
    first = await agents.begin(group.url, "t18")
    await first.end()
    for _ in range(8):
        error = error_of(await first.call("add", arguments={"n": 1}), 410)
        assert "not running on this server" in error["message"]
    second = await agents.begin(group.url, "t18")
    for _ in range(200):
        reply = await second.call("add", headers=first.headers, arguments={"n": 1})
        assert error_of(reply, 403)["code"] == "wrong_nonce"
    assert (await second.add(5))["total"] == 5
    assert len((await second.end())["calls"]) == 1


async def test_the_same_attempt_is_refused_while_it_runs_and_another_is_not(
    group: RunningGroup, agents: Agents
):
    """R-T23, R-T24."""
    first = await agents.begin(group.url, "t24")
    for _ in range(2 * 4):  # whichever shard is asked, the first's own included
        refused = await agents.run(group.url, "t24")
        assert error_of(refused, 409)["code"] == "duplicate_claim"
        await first.add(1)
    retry = await agents.begin(group.url, "t24", 1)
    assert ((await retry.add(7))["total"], (await first.add(1))["total"]) == (7, 9)
    assert (await retry.end())["total"] == 7
    assert (await first.add(1))["total"] == 10
    assert (await first.end())["total"] == 10
    error_of(await retry.call("total"), 410)
    again = await agents.begin(group.url, "t24")
    assert (await again.add(1))["total"] == 1
    await again.end()


async def test_one_of_many_that_race_for_an_attempt_wins(group: RunningGroup, agents: Agents):
    """R-T25."""
    agents.expect("t25")
    racing = [asyncio.create_task(agents.run(group.url, "t25")) for _ in range(20)]

    def refused() -> int:
        return sum(task.done() for task in racing)

    await wait_until_async(lambda: refused() == 19, "all but one are answered", 30.0)
    agents.ends["t25", 0].set()
    statuses = [(await task).status_code for task in racing]
    assert sorted(statuses) == [200] + [409] * 19


async def test_an_episode_whose_client_leaves_is_over(group: RunningGroup, agents: Agents):
    """R-T26."""
    played = await agents.begin(group.url, "t26")
    await played.add(1)
    played.run.cancel()
    await played.wait_gone()
    again = await agents.begin(group.url, "t26")
    assert (await again.add(1))["total"] == 1
    await again.end()


async def test_an_episode_that_fails_is_over(group: RunningGroup, agents: Agents):
    """R-T26: nobody listens where its agent should be, so it can be tried again at once."""
    body = {"rollout_id": "t26-fails", "agent_url": "http://127.0.0.1:1/"}
    for _ in range(8):
        reply = await agents.client.post(f"{group.url}/run", json=body)
        assert error_of(reply, 502)["code"] == "agent_unreachable"


async def test_an_ended_episode_stays_gone_after_many_others(group: RunningGroup, agents: Agents):
    """R-T19, R-T27 small: 200 others."""
    first = await agents.begin(group.url, "t19")
    await first.end()
    for start in range(0, 200, 20):
        others = await begin_many(agents, group, f"t19-{start}", 20)
        await asyncio.gather(*[other.add(1) for other in others])
        await asyncio.gather(*[other.end() for other in others])
    for _ in range(8):
        error = error_of(await first.call("add", arguments={"n": 1}), 410)
        assert "not running on this server" in error["message"]


async def test_a_call_arrives_as_it_was_sent(group: RunningGroup, agents: Agents):
    """R-T7, as far as a tool can see it: chunks, escapes, queries, doubled headers, megabytes."""
    played = await agents.begin(group.url, "t7")
    padded = b'{"n":1' + b" " * (3 << 20) + b"}"
    cases: list[tuple[str, list[tuple[str, str]], bytes, int]] = [
        ("/tools/add", [], b'{"n":1}', 2),  # in chunks of two bytes
        ("/tools/%61dd", [], b'{"n":1}', 0),
        ("/tools/add?n=7&n=8", [], b'{"n":1}', 0),
        ("/tools/add", [("x-a", "1"), ("x-a", "2")], b'{"n":1}', 0),
        ("/tools/add", [], padded, 0),
        ("/tools/add", [], padded, 65536),
    ]
    for number, (path, more, body, chunk_bytes) in enumerate(cases, 1):
        headers = [*played.headers.items(), *more]
        request = request_bytes("POST", path, headers, body, chunk_bytes=chunk_bytes)
        async with open_raw(group.address) as connection:
            reply = await connection.ask(request)
            assert (reply.status, json.loads(reply.body)["total"]) == (200, number)
    await played.end()


@pytest.mark.parametrize("shape", [LONE, ROUTED_FOUR], ids=lambda shape: shape.name)
async def test_the_limit_of_episodes_is_the_servers(
    groups: Groups, agents: Agents, shape: Topology
):
    """R-T40."""
    group = shape.start(groups, APP, {"SESSIONS_MAX_EPISODES": "8"})
    episodes = [await agents.begin(group.url, f"t40-{number}") for number in range(8)]
    for number in range(8):
        full = await agents.run(group.url, f"t40-more-{number}")
        assert error_of(full, 503)["code"] == "overloaded"
        assert full.headers["retry-after"] == "1"
    await episodes[0].end()
    await asyncio.gather(*[episode.end() for episode in episodes[1:]])


@pytest.mark.parametrize("shape", [LONE, ROUTED_FOUR], ids=lambda shape: shape.name)
async def test_episodes_that_outlive_the_graceful_time_are_answered_and_cleaned(
    groups: Groups, agents: Agents, shape: Topology
):
    app = "tests.support.tool_apps:SweptEnvironment"
    group = shape.start(groups, app, {"SESSIONS_GRACEFUL_S": "1"})
    played = await agents.begin(group.url, "swept")
    assert await asyncio.to_thread(group.terminate) == 72
    reply = await played.run
    assert (reply.status_code, reply.json()["error"]["code"]) == (503, "group_stopped")
    assert "cleaned episode=swept" in group.log()
