"""The warehouse: same seed, same warehouse; what cannot be done changes nothing; the reward."""

from __future__ import annotations

import sqlite3
from typing import Any, Final

import httpx
import pytest
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from examples import warehouse_env
from examples.warehouse_env import ORDER_COUNT, TASK, Place, Warehouse, WarehouseEnvironment
from sessions.errors.episodes import ToolError
from tests.support.episodes import ORIGIN, context_of
from tests.support.mcp_clients import serving
from tests.support.rollouts import error_of, serve_state

PLACES: Final[set[Place]] = {"harbour", "north", "south"}


def stock_of(warehouse: Warehouse) -> dict[str, Any]:
    return {item: warehouse.find(item)["stock"] for item in ("bolt", "gear", "spring")}


def gather(warehouse: Warehouse, order: dict[str, Any]) -> None:
    """Move every piece of what an order wants to its place."""
    for place, count in warehouse.find(order["item"])["stock"].items():
        if count and place != order["place"]:
            warehouse.move(order["item"], count, place, order["place"])


def test_the_seed_decides_the_orders_and_the_stock():
    first, same, other = Warehouse(7), Warehouse(7), Warehouse(8)
    assert first.list_orders() == same.list_orders() != other.list_orders()
    assert stock_of(first) == stock_of(same)
    assert len(first.list_orders()["orders"]) == ORDER_COUNT


@pytest.mark.parametrize("seed", range(20))
def test_every_warehouse_has_exactly_what_is_ordered(seed: int):
    warehouse = Warehouse(seed)
    assert warehouse.reward == 0.0
    for shipped, order in enumerate(warehouse.list_orders()["orders"], 1):
        gather(warehouse, order)
        assert warehouse.ship(order["number"]) == {"shipped": order["number"]}
        assert warehouse.reward == pytest.approx(shipped / ORDER_COUNT)
    assert warehouse.reward == 1.0
    assert warehouse.list_orders() == {"orders": []}
    assert stock_of(warehouse) == dict.fromkeys(
        ("bolt", "gear", "spring"), dict.fromkeys(PLACES, 0)
    )


def test_what_cannot_be_done_is_told_and_changes_nothing():
    warehouse = Warehouse(0)
    order = warehouse.list_orders()["orders"][0]
    item, place = order["item"], order["place"]
    (away, *_) = PLACES - {place}
    there = warehouse.find(item)["stock"]
    with pytest.raises(ToolError, match=f"{place} has less than {there[place] + 1} of {item}"):
        warehouse.move(item, there[place] + 1, place, away)
    if there[place]:
        warehouse.move(item, there[place], place, away)
    before = stock_of(warehouse)
    with pytest.raises(ToolError, match=f"{place} has less than {order['count']} of {item}"):
        warehouse.ship(order["number"])
    with pytest.raises(ToolError, match="no open order has the number 99"):
        warehouse.ship(99)
    assert (stock_of(warehouse), warehouse.reward) == (before, 0.0)


def test_an_order_is_shipped_once():
    warehouse = Warehouse(0)
    order = warehouse.list_orders()["orders"][0]
    gather(warehouse, order)
    warehouse.ship(order["number"])
    with pytest.raises(ToolError, match="no open order"):
        warehouse.ship(order["number"])
    assert warehouse.reward == pytest.approx(1 / ORDER_COUNT)


# --- the environment


async def run(
    body: dict[str, Any], agent_status: int = 204
) -> tuple[httpx.Response, list[dict[str, Any]]]:
    """One episode with an agent that does nothing but answer; what it was posted."""
    orders = []

    async def play(request: Request) -> Response:
        orders.append(await request.json())
        return Response(status_code=agent_status)

    agent = Starlette(routes=[Route("/", play, methods=["POST"])])
    environment = WarehouseEnvironment(context_of(shard_index=2, shards=4))
    async with serve_state(environment.app()) as asgi:
        client = httpx.AsyncClient(transport=httpx.ASGITransport(asgi), base_url=ORIGIN)
        async with client, serving(agent) as url:
            order = {"rollout_id": "r", "agent_url": f"{url}/", **body}
            return await client.post("/run", json=order), orders


@pytest.fixture
def made(monkeypatch: pytest.MonkeyPatch) -> list[Warehouse]:
    """The warehouses that episodes made."""
    found: list[Warehouse] = []

    class NotedWarehouse(Warehouse):
        def __init__(self, seed: int) -> None:
            super().__init__(seed)
            found.append(self)

    monkeypatch.setattr(warehouse_env, "Warehouse", NotedWarehouse)
    return found


def is_closed(warehouse: Warehouse) -> bool:
    try:
        warehouse.list_orders()
    except sqlite3.ProgrammingError:
        return True
    return False


async def test_an_episode_tells_its_reward_and_closes_its_database(made: list[Warehouse]):
    reply, (order,) = await run({"seed": 3})
    assert (reply.status_code, reply.json()) == (200, {"reward": 0.0, "shard": 2, "calls": []})
    assert list(order) == ["episode", "direct_http", "mcp", "task"]
    assert order["task"] == TASK
    assert [is_closed(warehouse) for warehouse in made] == [True]


async def test_an_agent_that_fails_is_no_reward_of_0(made: list[Warehouse]):
    reply, _ = await run({}, agent_status=500)
    assert error_of(reply, 502)["code"] == "agent_failed"
    assert [is_closed(warehouse) for warehouse in made] == [True]


@pytest.mark.parametrize("seed", ["3", True, None, 1.5])
async def test_a_seed_that_is_none_is_refused(seed: object, made: list[Warehouse]):
    reply, orders = await run({"seed": seed})
    assert error_of(reply, 400)["param"] == "seed"
    assert (orders, made) == ([], [])
