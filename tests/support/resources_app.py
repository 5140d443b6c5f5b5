"""An environment of seeded sessions for tests: a counter each, and what can go wrong.

A seed's body may say `start`, `fail` (the seed fails), `hold` (it waits until the test lets go, in
one process), `stuck` (its release fails so many times), `over_mcp` (names for MCP) and `expected`,
which a verdict compares. Every reply of a tool names its shard.

Spec: docs/architecture.md#tests
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from typing import Any

from sessions.errors.client_visible import UnprocessableError
from sessions.errors.episodes import ToolError
from sessions.tools.context import ToolContext
from sessions.tools.resources_environment import ResourcesEnvironment
from sessions.tools.seeded_session import SeededSession
from sessions.tools.session_routes import Verdict


@dataclass
class Counter:
    """The state of one session; its methods are tools."""

    shard: int
    count: int
    expected: int
    stuck: int
    held: asyncio.Event = field(default_factory=asyncio.Event)

    def add(self, n: int) -> dict[str, int]:
        """Add n."""
        self.count += n
        return self.total()

    def total(self) -> dict[str, int]:
        """Tell the count."""
        return {"total": self.count, "shard": self.shard}

    def refuse(self) -> None:
        """Refuse."""
        raise ToolError("not this")

    async def wait(self) -> None:
        """Wait for ever, unless the test lets go."""
        await self.held.wait()


class CounterResources(ResourcesEnvironment):
    """One counter a session.

    Attributes:
        seeded: How often each id was seeded.
        closed: How often each was released.
        holding: Seeds that wait.
        go_on: Lets them go.
        verifying: Lets a verdict wait, if the test put one.
    """

    def __init__(self, context: ToolContext) -> None:
        super().__init__(context)
        self.seeded: dict[str, int] = {}
        self.closed: dict[str, int] = {}
        self.holding = 0
        self.go_on = asyncio.Event()
        self.verifying: asyncio.Event | None = None
        self.life: list[str] = []

    async def seed(self, request: dict[str, Any], session: SeededSession) -> dict[str, Any]:
        """Make a counter."""
        self.seeded[session.id] = self.seeded.get(session.id, 0) + 1
        counter = session.state = Counter(
            shard=self.context.shard_index,
            count=request.get("start", 0),
            expected=request.get("expected", 0),
            stuck=request.get("stuck", 0),
        )
        if request.get("hold"):
            self.holding += 1
            await self.go_on.wait()
        if request.get("fail"):
            raise UnprocessableError("no such task")
        session.serve_tools(
            [counter.add, counter.total, counter.refuse, counter.wait],
            over_mcp=request.get("over_mcp"),
        )
        return {"shard": counter.shard, "seeded": self.seeded[session.id]}

    async def verify(self, request: dict[str, Any], session: SeededSession) -> Verdict:
        """Compare with what the seed expected."""
        if self.verifying is not None:
            await self.verifying.wait()
        counter: Counter = session.state
        if "reward" in request:
            return float(request["reward"])
        told = {"shard": counter.shard, "calls": len(session.calls)}
        told["is_stopped"] = session.is_stopped
        return {"reward": float(counter.count == counter.expected), **told}

    async def close(self, session: SeededSession) -> None:
        """Release it, perhaps not at once."""
        counter: Counter = session.state
        if counter.stuck:
            counter.stuck -= 1
            raise OSError("a disk is full")
        self.closed[session.id] = self.closed.get(session.id, 0) + 1

    async def start(self) -> None:
        """Note it."""
        self.life.append("start")

    async def stop(self) -> None:
        """Note it."""
        self.life.append(f"stop with {self.open_sessions} sessions")
