"""What a lone shard answers about episodes, four shards answer byte for byte.

The names of reference tests stand behind the tests: R-T38.
"""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from typing import Any, Final

import pytest

from tests.support.agents import Agents, Played, open_agents
from tests.support.group import Groups, RunningGroup
from tests.support.raw import open_raw, request_bytes
from tests.support.topology import LONE, ROUTED_FOUR, ROUTED_ONE

APP: Final = "examples.counter_env:CounterEnvironment"
ASKED: Final = 4  # times each, so that more than one shard is asked where there are more
Comparable = tuple[str, int, str, list[tuple[str, str]], bytes]
Headers = list[tuple[str, str]]

MCP: Final[Headers] = [
    ("accept", "application/json, text/event-stream"),
    ("content-type", "application/json"),
    ("mcp-protocol-version", "2025-11-25"),
]
LIST: Final = b'{"jsonrpc":"2.0","id":1,"method":"tools/list"}'
CALL: Final = (
    b'{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"%s","arguments":%s}}'
)


@pytest.fixture
async def agents() -> AsyncIterator[Agents]:
    async with open_agents() as found:
        yield found


class Script:
    """Asks a group, and notes what it answers."""

    def __init__(self, group: RunningGroup) -> None:
        self.group = group
        self.noted: list[tuple[str, Comparable]] = []

    async def ask(self, what: str, path: str, headers: Headers, body: bytes = b"") -> None:
        """One request, some times over."""
        for _ in range(ASKED):
            async with open_raw(self.group.address) as connection:
                reply = await connection.ask(request_bytes("POST", path, headers, body))
            self.noted.append((what, reply.comparable()))

    async def ask_all(self, what: str, headers: Headers) -> None:
        """A direct call and a list over MCP."""
        await self.ask(f"{what}: direct", "/tools/total", headers)
        await self.ask(f"{what}: MCP", "/mcp", [*MCP, *headers], LIST)


async def play(script: Script, agents: Agents) -> None:
    """Everything that is answered alike whichever shard an episode has."""
    url = script.group.url
    first = await agents.begin(url, "r")
    await first.end()
    ended = headers_of(first)
    ((name, token),) = ended
    await script.ask_all("ended", ended)
    second = await agents.begin(url, "r")
    running = headers_of(second)
    for what, headers in (
        ("no token", []),
        ("garbage", [(name, "garbage")]),
        ("cut", [(name, token[:-1])]),
        ("another run of it", ended),
    ):
        await script.ask_all(what, headers)
    await script.ask("no such tool", "/tools/sub", running)
    await script.ask("other arguments", "/tools/add", running, b'{"n":"1"}')
    await script.ask("no JSON", "/tools/add", running, b"{")
    await script.ask("no path", "/nothing", running)
    order = json.dumps({"rollout_id": "r", "attempt": 0, "agent_url": agents.url}).encode()
    await script.ask("the same attempt", "/run", [], order)
    for body in (b"{}", b'{"rollout_id":"r-a1"}', b'{"rollout_id":"r","attempt":-1}', b"["):
        await script.ask(f"no episode: {body!r}", "/run", [], body)
    listed: list[tuple[str, bytes]] = [
        ("lists", LIST),
        ("calls", CALL % (b"total", b'{"n":1}')),
        ("calls no tool", CALL % (b"sub", b"{}")),
    ]
    for what, body in listed:
        await script.ask(what, "/mcp", [*MCP, *running], body)
    await second.end()


def headers_of(played: Played) -> Headers:
    return list(played.headers.items())


async def test_every_answer_about_episodes_is_that_of_a_lone_shard(groups: Groups, agents: Agents):
    """R-T38: statuses, headers, bodies."""
    noted: list[list[tuple[str, Any]]] = []
    for shape in (LONE, ROUTED_ONE, ROUTED_FOUR):
        script = Script(shape.start(groups, APP))
        await play(script, agents)
        noted.append(script.noted)
    lone, *others = noted
    for other in others:
        assert len(other) == len(lone)
        for mine, its in zip(lone, other, strict=True):
            assert its == mine
    statuses = {what: comparable[1] for what, comparable in lone}
    assert set(statuses.values()) == {200, 400, 401, 403, 404, 409, 410, 422}
