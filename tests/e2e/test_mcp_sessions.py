"""Stateful MCP through real groups: each session stays at the process that holds it."""

from __future__ import annotations

import asyncio
import re
import signal
from typing import Final

import httpx
import pytest
from mcp import MCPError

from tests.support.group import Groups, RunningGroup
from tests.support.mcp_clients import talking
from tests.support.stateful_mcp_app import IDLE_VARIABLE
from tests.support.waiting import wait_until

APP: Final = "tests.support.stateful_mcp_app:make_app"
CLIENTS: Final = 24
CALLS: Final = 5
INITIALIZE: Final = {
    "jsonrpc": "2.0",
    "id": 1,
    "method": "initialize",
    "params": {
        "protocolVersion": "2025-11-25",
        "capabilities": {},
        "clientInfo": {"name": "test", "version": "1"},
    },
}
LIST: Final = {"jsonrpc": "2.0", "id": 2, "method": "tools/list"}
ACCEPT: Final = {"accept": "application/json, text/event-stream"}


async def play(group: RunningGroup) -> tuple[list[int], set[int]]:
    """One SDK client of the older generation; totals that it saw, and processes."""
    async with talking(f"{group.url}/mcp", {}, "legacy") as talk:
        await talk.client.list_tools()
        results = [await talk.client.call_tool("add", {"n": 1}) for _ in range(CALLS)]
    told = [result.structured_content or {} for result in results]
    return [each["total"] for each in told], {each["pid"] for each in told}


def claims_of(group: RunningGroup) -> int:
    """How many claims the router says it knows."""
    page = httpx.get(f"{group.url}/metrics", trust_env=False).text
    found = re.search(r"^sessile_claims (\d+)", page, re.MULTILINE)
    assert found is not None
    return int(found[1])


def ask(group: RunningGroup, message: object, **headers: str) -> httpx.Response:
    """One request by plain HTTP."""
    sent = ACCEPT | {name.replace("_", "-"): value for name, value in headers.items()}
    return httpx.post(f"{group.url}/mcp", json=message, headers=sent, trust_env=False)


@pytest.mark.timeout(120)
@pytest.mark.parametrize("shards", [1, 4])
async def test_every_request_of_a_session_reaches_its_process(groups: Groups, shards: int):
    group = groups.start(app=APP, shards=shards)
    played = await asyncio.gather(*(play(group) for _ in range(CLIENTS)))
    assert [totals for totals, _ in played] == [list(range(1, CALLS + 1))] * CLIENTS
    assert all(len(pids) == 1 for _, pids in played)
    assert len(set.union(*(pids for _, pids in played))) == shards
    if shards > 1:  # each client has ended its session
        wait_until(lambda: claims_of(group) == 0, "the claims' end")


@pytest.mark.timeout(120)
def test_a_session_that_is_left_is_given_up(groups: Groups):
    group = groups.start(app=APP, shards=2, env={IDLE_VARIABLE: "3"})
    session_id = ask(group, INITIALIZE).headers["mcp-session-id"]
    wait_until(lambda: claims_of(group) == 1, "the claim")
    wait_until(lambda: claims_of(group) == 0, "the claim's end", deadline_s=30)
    assert ask(group, LIST, mcp_session_id=session_id).status_code == 404


@pytest.mark.timeout(120)
async def test_a_session_whose_shard_died_is_not_found_so_that_its_client_begins_again(
    groups: Groups,
):
    group = groups.start(app=APP, shards=2, env={"SESSIONS_ON_SHARD_EXIT": "continue"})
    url = f"{group.url}/mcp"
    async with talking(url, {}, "legacy") as talk:
        result = await talk.client.call_tool("add", {"n": 1})
        pid = (result.structured_content or {})["pid"]
        (member,) = [name for name, its in group.pids.items() if its == pid]
        group.signal(member, signal.SIGKILL)
        with pytest.raises(MCPError, match="no longer running"):
            await talk.client.call_tool("add", {"n": 1})
        assert talk.requests[-1] == ("POST", 404, "application/json")
    totals, _ = await play(group)
    assert totals[-1] == CALLS
