"""A tool environment worth copying: orders to fill from a warehouse, with a reward.

    export SESSIONS_APP=examples.warehouse_env:WarehouseEnvironment
    SESSIONS_SHARDS=4 gunicorn -c gunicorn_conf.py
    python examples/warehouse_agent.py          # plays; see there

`POST /run` with `{"rollout_id", "attempt", "seed", "agent_url"}` is one episode. Every episode has
a database of its own, in memory, filled from the seed. Orders want goods at one place, the goods
lie at several; the agent lists the orders, finds goods, moves them and ships. The reply has the
reward: the part of the orders that was shipped, from 0 to 1.

What to copy: the state is one object whose methods are the tools; the tools say with `ToolError`
what the agent may read; the clean-up is asked for as soon as there is something to clean; an agent
that failed is an error of the episode and no reward of 0.

Spec: docs/tools.md#an-example-with-a-reward
"""

from __future__ import annotations

import sqlite3
from collections import Counter
from random import Random
from typing import Annotated, Any, ClassVar, Final, Literal, get_args

import httpx
import msgspec

from examples.agent_client import AgentClient, agent_url_of, order_of
from sessions.errors.client_visible import ClientVisibleError, RequestError
from sessions.errors.episodes import ToolError
from sessions.tools.context import ToolContext
from sessions.tools.environment import ToolEnvironment
from sessions.tools.episode import Episode

TASK: Final = "Ship every open order. An order is shipped from its place, all its pieces at once."

Item = Literal["bolt", "gear", "spring"]
Place = Literal["harbour", "north", "south"]
Count = Annotated[int, msgspec.Meta(ge=1, le=1000, description="Pieces")]
Number = Annotated[int, msgspec.Meta(ge=1, le=1000, description="Of an order")]

ORDER_COUNT: Final = 6
MOST_PIECES: Final = 5  # of one order
SCHEMA: Final = """
    CREATE TABLE orders (
        number INTEGER PRIMARY KEY, item TEXT, count INTEGER, place TEXT,
        is_shipped INTEGER DEFAULT 0
    );
    CREATE TABLE stock (
        item TEXT, place TEXT, count INTEGER CHECK (count >= 0), PRIMARY KEY (item, place)
    );
"""


class AgentFailedError(ClientVisibleError):
    """The agent answered with an error; a fault of the agent's and no result of the episode."""

    status: ClassVar[int] = 502
    type: ClassVar[str] = "upstream_error"
    code: ClassVar[str] = "agent_failed"


class Warehouse:
    """The state of one episode; its first four methods are the agent's tools."""

    def __init__(self, seed: int) -> None:
        """Fill a database; the same seed gives the same orders and the same stock."""
        self._database = sqlite3.connect(":memory:")
        self._database.row_factory = sqlite3.Row
        self._database.executescript(SCHEMA)
        self._fill(Random(seed))  # noqa: S311 - no secret

    def list_orders(self) -> dict[str, Any]:
        """List the open orders: number, item, count, and the place that ships it."""
        rows = self._database.execute(
            "SELECT number, item, count, place FROM orders WHERE NOT is_shipped ORDER BY number"
        )
        return {"orders": [dict(row) for row in rows]}

    def find(self, item: Item) -> dict[str, Any]:
        """Tell how many pieces of an item each place has."""
        rows = self._database.execute("SELECT place, count FROM stock WHERE item = ?", [item])
        return {"stock": {row["place"]: row["count"] for row in rows}}

    def move(self, item: Item, count: Count, source: Place, target: Place) -> dict[str, Any]:
        """Move pieces of an item from one place to another."""
        try:
            with self._database:  # both or none
                self._add(item, source, -count)
                self._add(item, target, count)
        except sqlite3.IntegrityError:
            raise ToolError(f"{source} has less than {count} of {item}") from None
        return self.find(item)

    def ship(self, order: Number) -> dict[str, Any]:
        """Ship an open order, by its number; all its pieces must be at its place."""
        row = self._database.execute(
            "SELECT item, count, place FROM orders WHERE number = ? AND NOT is_shipped", [order]
        ).fetchone()
        if row is None:
            raise ToolError(f"no open order has the number {order}")
        try:
            with self._database:
                self._add(row["item"], row["place"], -row["count"])
                self._database.execute("UPDATE orders SET is_shipped = 1 WHERE number = ?", [order])
        except sqlite3.IntegrityError:
            raise ToolError("{place} has less than {count} of {item}".format(**row)) from None
        return {"shipped": order}

    @property
    def reward(self) -> float:
        """The part of the orders that was shipped: 0 to 1."""
        found: float = self._database.execute("SELECT avg(is_shipped) FROM orders").fetchone()[0]
        return found

    def close(self) -> None:
        """Forget everything."""
        self._database.close()

    def _add(self, item: str, place: str, count: int) -> None:
        self._database.execute(
            "UPDATE stock SET count = count + ? WHERE item = ? AND place = ?", [count, item, place]
        )

    def _fill(self, random: Random) -> None:
        """Write orders, and put each piece that they want anywhere: all can be shipped."""
        items, places = get_args(Item), get_args(Place)
        stock = Counter({(item, place): 0 for item in items for place in places})
        with self._database:
            for number in range(1, ORDER_COUNT + 1):
                item, count = random.choice(items), random.randint(1, MOST_PIECES)
                stock.update((item, random.choice(places)) for _ in range(count))
                self._database.execute(
                    "INSERT INTO orders (number, item, count, place) VALUES (?, ?, ?, ?)",
                    [number, item, count, random.choice(places)],
                )
            self._database.executemany(
                "INSERT INTO stock VALUES (?, ?, ?)", [(*key, n) for key, n in stock.items()]
            )


class WarehouseEnvironment(ToolEnvironment):
    """One warehouse an episode."""

    def __init__(self, context: ToolContext) -> None:
        """Run nothing yet."""
        super().__init__(context)
        self._agents = AgentClient()

    async def run(self, request: dict[str, Any], episode: Episode) -> dict[str, Any]:
        """Let the agent play, then tell its reward."""
        agent_url, seed = agent_url_of(request), request.get("seed", 0)
        if type(seed) is not int:
            raise RequestError("seed is not a whole number", param="seed")
        warehouse = Warehouse(seed)
        episode.on_cleanup(warehouse.close)
        async with self.serve_tools(
            episode, [warehouse.list_orders, warehouse.find, warehouse.move, warehouse.ship]
        ) as grants:
            order = {**order_of(episode, grants), "task": TASK}
            agent_status = await self._agents.play(agent_url, order)
        if not httpx.codes.is_success(agent_status):
            raise AgentFailedError(f"the agent answered {agent_status}")
        calls = [call.to_json() for call in episode.calls]
        return {"reward": warehouse.reward, "shard": self.context.shard_index, "calls": calls}

    async def stop(self) -> None:
        """Close what episodes share."""
        await self._agents.close()
