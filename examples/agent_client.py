"""How the example environments call their agent: they post it an order and wait for its answer.

An order has the episode and its grants, and whatever else an environment tells. The agent plays by
calling the episode's tools, then answers; what it did is in `episode.calls`, not in its answer.

Spec: docs/tools.md#an-environment-in-five-minutes
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict
from typing import Any, ClassVar, Final

import httpx

from sessions.errors.client_visible import ClientVisibleError, RequestError
from sessions.tools.episode import Episode
from sessions.tools.grants import Grants

AGENT_TIMEOUT_S: Final = 600.0  # an agent may think for long; a guess


class AgentUnreachableError(ClientVisibleError):
    """The agent did not answer; a fault of the setup and no result of the episode."""

    status: ClassVar[int] = 502
    type: ClassVar[str] = "upstream_error"
    code: ClassVar[str] = "agent_unreachable"


def agent_url_of(request: Mapping[str, Any]) -> str:
    """Where the agent is that a request for an episode names.

    Raises:
        RequestError: It names none.
    """
    agent_url = request.get("agent_url")
    if not isinstance(agent_url, str):
        raise RequestError("agent_url is not a text", param="agent_url")
    return agent_url


def order_of(episode: Episode, grants: Grants) -> dict[str, Any]:
    """What an agent is posted: `episode {rollout_id, attempt}`, `direct_http {…}`, `mcp {…}`."""
    return {"episode": asdict(episode.id), **grants.to_json()}


class AgentClient:
    """Calls agents; an environment has one for all its episodes."""

    def __init__(self) -> None:
        """Open nothing yet."""
        # A connection an agent: an agent that is gone must not hold up another one.
        limits = httpx.Limits(max_connections=None, max_keepalive_connections=0)
        self._http = httpx.AsyncClient(timeout=AGENT_TIMEOUT_S, limits=limits, trust_env=False)

    async def play(self, agent_url: str, order: Mapping[str, Any]) -> int:
        """Let an agent play an episode to its end.

        Returns:
            The status of its answer.

        Raises:
            AgentUnreachableError: It did not answer.
        """
        try:
            reply = await self._http.post(agent_url, json=order)
        except (httpx.HTTPError, httpx.InvalidURL) as error:
            raise AgentUnreachableError(f"the agent did not answer: {error!r}") from error
        return reply.status_code

    async def close(self) -> None:
        """Close what is open."""
        await self._http.aclose()
