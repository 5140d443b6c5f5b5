"""What a subclass of `ResourcesEnvironment` can rely on, and MCP for its sessions."""

from __future__ import annotations

import inspect
from collections.abc import AsyncIterator

import httpx
import pytest
from mcp import MCPError

from sessions.routing.claimed_kinds import ROLLOUT_STOPS
from sessions.routing.kind_text import kinds_of_text, kinds_to_text
from sessions.routing.naming import name_of
from sessions.tools.resources_environment import ResourcesEnvironment
from tests.support.episodes import context_of
from tests.support.mcp_clients import MODES, refusal_of, serving, talking
from tests.support.resources_app import CounterResources
from tests.support.rollouts import SECRET, error_of, serve_state
from tests.support.seeded import TOKEN_HEADER, Scene, Seeding, open_scene, seeding_of


async def test_start_comes_before_and_stop_after_all_sessions():
    async with open_scene() as scene:
        assert scene.environment.life == ["start"]
        await scene.seed()
    assert scene.environment.life == ["start", "stop with 0 sessions"]


async def test_an_environment_without_a_seed_fails_its_sessions():
    environment = ResourcesEnvironment(context_of())
    async with serve_state(environment.app()) as asgi:
        scene = Scene(environment=environment, asgi=asgi)  # type: ignore[arg-type]
        error_of(await scene.try_seed(), 500)
        assert environment.open_sessions == 0


def test_few_names_of_ours_can_collide_with_a_subclass():
    ours = {n for n, _ in inspect.getmembers(ResourcesEnvironment) if not n.startswith("__")}
    ours |= set(vars(ResourcesEnvironment(context_of())))
    assert ours == {
        "_cookie",
        "_sessions",
        "_tokens",
        "_tool_life",
        "app",
        "close",
        "context",
        "open_sessions",
        "seed",
        "session_kinds",
        "start",
        "stop",
        "sweep",
        "verify",
    }


async def test_the_router_names_a_session_as_its_environment_does():
    kinds = CounterResources(context_of()).session_kinds
    assert kinds[0] == ROLLOUT_STOPS
    assert kinds_to_text(kinds) == kinds_to_text(CounterResources(context_of()).session_kinds)
    read = kinds_of_text(kinds_to_text(kinds), SECRET)
    async with open_scene() as scene:
        first = await scene.seed("s1")
    for path, sent in (("/add", first.cookie), ("/add", first.token), ("/mcp", first.token)):
        lines = {name.lower().encode(): [value.encode()] for name, value in sent.items()}
        named = name_of(read, path, lambda name, lines=lines: lines.get(name, ()))  # type: ignore[misc]
        assert named is not None
        assert named.key == "s1"


# --- MCP


class Served:
    """An environment on a loopback port."""

    def __init__(self, url: str) -> None:
        self.url = url

    async def seed(self, **payload: object) -> Seeding:
        async with httpx.AsyncClient(trust_env=False) as http:
            return seeding_of(await http.post(f"{self.url}/seed_session", json=payload))


@pytest.fixture
async def served() -> AsyncIterator[Served]:
    async with serving(CounterResources(context_of()).app()) as url:
        yield Served(url)


@pytest.mark.parametrize("mode", MODES)
async def test_a_client_of_mcp_has_the_tools_that_its_token_names(served: Served, mode: str):
    seeding = await served.seed(start=5, over_mcp=["add", "refuse"])
    async with talking(f"{served.url}/mcp", seeding.token, mode) as talk:
        listed = await talk.client.list_tools()
        assert [tool.name for tool in listed.tools] == ["add", "refuse"]
        result = await talk.client.call_tool("add", {"n": 2})
        assert result.structured_content == {"total": 7, "shard": 0}
        assert (await talk.client.call_tool("refuse", {})).is_error
        with pytest.raises(MCPError) as caught:
            await talk.client.call_tool("total", {})
        assert caught.value.error.code == 403
        with pytest.raises(MCPError, match="no tool"):
            await talk.client.call_tool("nothing", {})


async def test_on_the_path_of_mcp_only_a_token_counts(served: Served):
    """R-T12."""
    first, second = await served.seed(start=1), await served.seed(start=2)
    async with talking(f"{served.url}/mcp", second.token | first.cookie, "auto") as talk:
        result = await talk.client.call_tool("total", {})
        assert result.structured_content == {"total": 2, "shard": 0}
    for headers in ({}, first.cookie, {TOKEN_HEADER: "garbage"}, {TOKEN_HEADER: ""}):
        for mode in MODES:
            assert (await refusal_of(f"{served.url}/mcp", headers, mode)).error.code == 401


async def test_a_closed_session_is_gone_for_clients_of_mcp(served: Served):
    first = await served.seed()
    async with httpx.AsyncClient(trust_env=False) as http:
        reply = await http.post(f"{served.url}/close_session", headers=first.cookie)
        assert reply.json()["status"] == "closed"
    for mode in MODES:
        error = (await refusal_of(f"{served.url}/mcp", first.token, mode)).error
        assert (error.code, "it was closed" in error.message) == (410, True)
