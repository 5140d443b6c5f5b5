"""The warehouse's agent: over either transport, on one shard or four, the play decides the reward.

The names of reference tests stand behind the tests: R-E5.
"""

from __future__ import annotations

import contextlib
import subprocess
import sys
from collections.abc import Awaitable, Callable, Iterator
from typing import Any

import pytest

from examples import warehouse_agent
from examples.warehouse_agent import (
    TRANSPORTS,
    Agent,
    Call,
    EpisodeFailedError,
    ToolRefusedError,
    run_episodes,
    ship_all,
)
from examples.warehouse_env import Warehouse
from sessions.errors.episodes import ToolError
from tests.support.group import ROOT, Groups, RunningGroup, open_groups
from tests.support.mcp_clients import serving
from tests.support.topology import LONE, ROUTED_FOUR

APP = "examples.warehouse_env:WarehouseEnvironment"
EPISODES = 6
Play = Callable[[Call], Awaitable[None]]


@pytest.fixture(scope="module", params=[LONE, ROUTED_FOUR], ids=lambda topology: topology.name)
def group(request: pytest.FixtureRequest) -> Iterator[RunningGroup]:
    with open_groups() as groups:
        yield request.param.start(groups, APP)


async def ship_what_is_there(call: Call) -> None:
    """A play that forgets to move anything."""
    for order in (await call("list_orders"))["orders"]:
        with contextlib.suppress(ToolRefusedError):
            await call("ship", order=order["number"])


async def ship_one(call: Call) -> None:
    """A play that stops after an order, and asks for some that are not there."""
    with pytest.raises(ToolRefusedError, match="no open order has the number 99"):
        await call("ship", order=99)
    with pytest.raises(ToolRefusedError, match="bad arguments of tool 'ship'"):
        await call("ship", order=1 << 70)  # more than a database can hold
    with pytest.raises(ToolRefusedError, match="bad arguments of tool 'move'"):
        await call("move", item="bolt", count=0, source="north", target="south")

    async def call_once(name: str, **arguments: object) -> dict[str, Any]:
        found = await call(name, **arguments)
        return {"orders": found["orders"][:1]} if name == "list_orders" else found

    await ship_all(call_once)


async def reward_of(play: Play, seed: int) -> float:
    """What a play is worth, without any server."""
    warehouse = Warehouse(seed)

    async def call(name: str, **arguments: Any) -> dict[str, Any]:  # noqa: ANN401 - any argument
        try:
            found: dict[str, Any] = getattr(warehouse, name)(**arguments)
        except ToolError as error:
            raise ToolRefusedError(error.message) from error
        return found

    await play(call)
    return warehouse.reward


async def rewards_at(group: RunningGroup, agent: Agent, name: str) -> list[float]:
    async with serving(agent.app()) as url:
        episodes = await run_episodes(group.url, f"{url}/", name, EPISODES, EPISODES)
    return [episode["reward"] for episode in episodes]


@pytest.mark.parametrize("kept", [None, 0], ids=["kept", "new"])
@pytest.mark.parametrize("over", TRANSPORTS)
async def test_the_play_decides_the_reward_and_the_way_of_its_calls_does_not(
    group: RunningGroup, over: str, kept: int | None
):
    agent = Agent(over=over, kept=kept)
    assert await rewards_at(group, agent, f"all-{over}-{kept}") == [1.0] * EPISODES
    careless = Agent(over=over, kept=kept, play=ship_what_is_there)
    found = await rewards_at(group, careless, f"careless-{over}-{kept}")
    assert found == [await reward_of(ship_what_is_there, seed) for seed in range(EPISODES)]
    assert max(found) < 1.0
    assert sum(found) > 0.0, "in part"


@pytest.mark.parametrize("over", TRANSPORTS)
async def test_a_tool_that_refuses_tells_its_agent_in_the_same_words(
    group: RunningGroup, over: str
):
    found = await rewards_at(group, Agent(over=over, play=ship_one), f"one-{over}")
    assert found == pytest.approx([1 / 6] * EPISODES)


@pytest.mark.parametrize("over", TRANSPORTS)
async def test_an_agent_that_fails_is_told_with_the_servers_words(group: RunningGroup, over: str):
    async def ask_for_no_tool(call: Call) -> None:
        await call("burn")

    with pytest.raises(EpisodeFailedError, match="agent_failed"):
        await rewards_at(group, Agent(over=over, play=ask_for_no_tool), f"fails-{over}")


@pytest.mark.timeout(180)
def test_200_episodes_of_four_shards_have_all_of_the_reward(groups: Groups):
    """R-E5."""
    group = ROUTED_FOUR.start(groups, APP)
    for options in (["--episodes", "150"], ["--episodes", "50", "--over", "mcp"]):
        command = [sys.executable, "examples/warehouse_agent.py", group.url, *options]
        command += ["--at-once", "16", "--new-connections", "--name", options[-1]]
        done = subprocess.run(command, capture_output=True, text=True, check=False, cwd=ROOT)
        assert (done.returncode, done.stderr) == (0, "")
        *episodes, last = done.stdout.splitlines()
        assert len(episodes) == int(options[1])
        assert all(": reward 1.00, " in line for line in episodes)
        assert last.endswith(" on 4 shards: mean reward 1.000")


def test_no_server_is_one_line_and_exit_1(capsys: pytest.CaptureFixture[str]):
    assert warehouse_agent.main(["http://127.0.0.1:1", "--episodes", "1"]) == 1
    assert capsys.readouterr().err == "All connection attempts failed\n"
