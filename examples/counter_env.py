"""The smallest tool environment: a counter that the agent of an episode adds to.

    export SESSIONS_APP=examples.counter_env:CounterEnvironment
    SESSIONS_SHARDS=4 gunicorn -c gunicorn_conf.py

`POST /run` with `{"rollout_id", "attempt", "agent_url"}` posts the episode and its grants to
`agent_url`, which plays by calling the tools `add` and `total` and then answers. The reply has the
total, the calls in the server's order, and the agent's status.

Spec: docs/tools.md#an-environment-in-five-minutes
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any, ClassVar, Final

import httpx

from sessions.errors import ClientVisibleError, RequestError
from sessions.tools.context import ToolContext
from sessions.tools.environment import ToolEnvironment
from sessions.tools.episode import Episode

AGENT_TIMEOUT_S: Final = 600.0  # an agent may think for long; a guess


class AgentUnreachableError(ClientVisibleError):
    """The agent did not answer; a fault of the setup and no result of the episode."""

    status: ClassVar[int] = 502
    type: ClassVar[str] = "upstream_error"
    code: ClassVar[str] = "agent_unreachable"


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
        # A connection an agent: an agent that is gone must not hold up another one.
        limits = httpx.Limits(max_connections=None, max_keepalive_connections=0)
        self._agents = httpx.AsyncClient(timeout=AGENT_TIMEOUT_S, limits=limits, trust_env=False)

    async def run(self, request: dict[str, Any], episode: Episode) -> dict[str, Any]:
        """Let the agent play, then tell how it went."""
        agent_url = request.get("agent_url")
        if not isinstance(agent_url, str):
            raise RequestError("agent_url is not a text", param="agent_url")
        counter = Counter(self.context.shard_index)
        async with self.serve_tools(episode, [counter.add, counter.total]) as grants:
            order = {"episode": asdict(episode.id), **grants.to_json()}
            agent_status = await self._play(agent_url, order)
        return {
            "total": counter.count,
            "calls": [call.to_json() for call in episode.calls],
            "agent_status": agent_status,
        }

    async def _play(self, agent_url: str, order: dict[str, Any]) -> int:
        try:
            reply = await self._agents.post(agent_url, json=order)
        except (httpx.HTTPError, httpx.InvalidURL) as error:
            raise AgentUnreachableError(f"the agent did not answer: {error!r}") from error
        return reply.status_code

    async def stop(self) -> None:
        """Close the client."""
        await self._agents.aclose()
