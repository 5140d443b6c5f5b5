"""What a subclass of `ToolEnvironment` can rely on."""

import inspect

import httpx
import pytest

from sessions.errors.unseen import LocalProtocolError
from sessions.tools.environment import ToolEnvironment
from sessions.tools.tool import tool_of
from tests.support.episodes import HeldEnvironment, context_of, open_environment
from tests.support.rollouts import error_of, serve_state


class Noted(HeldEnvironment):
    """Notes what its shard asks of it."""

    async def start(self) -> None:
        self.ran.append("start")

    async def stop(self) -> None:
        self.ran.append(f"stop with {self.open_episodes} episodes")


async def test_start_comes_before_and_stop_after_all_episodes():
    environment = Noted(context_of())
    async with serve_state(environment.app()):
        assert environment.ran == ["start"]
    assert environment.ran == ["start", "stop with 0 episodes"]


async def test_the_end_of_the_lifespan_sweeps_first():
    async with open_environment() as opened:
        _, run = await opened.begin()
    assert error_of(await run.reply(), 503)["code"] == "group_stopped"
    assert opened.environment.cleaned == ["r"]


async def test_an_environment_without_a_run_fails_its_episodes():
    async with (
        serve_state(ToolEnvironment(context_of()).app()) as asgi,
        httpx.AsyncClient(transport=httpx.ASGITransport(asgi), base_url="http://h") as client,
    ):
        error_of(await client.post("/run", json={"rollout_id": "r"}), 500)


async def test_a_tool_that_cannot_be_one_stops_the_episode_before_the_claim():
    environment = ToolEnvironment(context_of())
    async with open_environment() as opened:
        held, run = await opened.begin()
        with pytest.raises(LocalProtocolError):
            async with environment.serve_tools(held.episode, [lambda *n: n]):
                pass
        tool = tool_of(lambda: 3, name="three")
        async with environment.serve_tools(held.episode, [tool]):  # nothing is held of the first
            pass
        held.is_over.set()
        await run.reply()


def test_few_names_of_ours_can_collide_with_a_subclass():
    ours = {name for name, _ in inspect.getmembers(ToolEnvironment) if not name.startswith("__")}
    ours |= set(vars(ToolEnvironment(context_of())))
    assert ours == {
        "_episode_runner",
        "_tool_life",
        "app",
        "context",
        "open_episodes",
        "run",
        "serve_tools",
        "start",
        "stop",
        "sweep",
    }
