"""The smallest tool environment: a counter that the agent of an episode adds to.

    export SESSIONS_APP=examples.counter_env:CounterEnvironment
    SESSIONS_SHARDS=4 gunicorn -c gunicorn_conf.py

`POST /run` with `{"rollout_id", "attempt", "agent_url"}` posts the episode and its grants to
`agent_url`, which plays by calling the tools `add` and `total` and then answers. The reply has the
total, the calls in the server's order, and the agent's status.

Spec: docs/tools.md#an-environment-in-five-minutes
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from examples.agent_client import AgentClient, agent_url_of, order_of
from sessions.tools.context import ToolContext
from sessions.tools.environment import ToolEnvironment
from sessions.tools.episode import Episode


@dataclass
class Counter:
    """The state of one episode; its methods are the agent's tools."""

    shard: int
    count: int = 0

    def add(self, n: int) -> dict[str, int]:
        """Add n to the counter."""
        self.count += n
        return self.total()

    def total(self) -> dict[str, int]:
        """Tell what was added so far."""
        return {"total": self.count, "shard": self.shard}


class CounterEnvironment(ToolEnvironment):
    """One counter an episode."""

    def __init__(self, context: ToolContext) -> None:
        """Run nothing yet."""
        super().__init__(context)
        self._agents = AgentClient()

    async def run(self, request: dict[str, Any], episode: Episode) -> dict[str, Any]:
        """Let the agent play, then tell how it went."""
        agent_url = agent_url_of(request)
        counter = Counter(self.context.shard_index)
        async with self.serve_tools(episode, [counter.add, counter.total]) as grants:
            agent_status = await self._agents.play(agent_url, order_of(episode, grants))
        return {
            "total": counter.count,
            "calls": [call.to_json() for call in episode.calls],
            "agent_status": agent_status,
        }

    async def stop(self) -> None:
        """Close what `run` shares."""
        await self._agents.close()
