"""What a shard gives to the tool environment that it runs.

Spec: docs/tools.md#an-environment-in-five-minutes
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from starlette.types import Scope

from sessions.tools.claims import Claims
from sessions.tools.mcp_rules import McpRules


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolContext:
    """Of one shard.

    Attributes:
        claims: Where the shard takes the claims of its episodes.
        run_secret: Signs episode tokens; the same in all shards of a run, never logged.
        episode_header: Name of the header that carries the token.
        origin_of: Scheme and authority under which the sender of a request (its ASGI scope) reaches
            this server; grants begin with it.
        shard_index: Of this shard, from 0.
        shards: How many the group has.
        max_episodes: How many episodes, or seeded sessions, this shard has at once: its share of
            SESSIONS_MAX_EPISODES.
        cleanup_s: How long all clean-up of one episode may take together.
        session_ttl_s: A seeded session that nobody used for so long ends.
        tombstones: How many ended sessions are remembered.
        mcp: What the operator decided about MCP.
    """

    claims: Claims
    run_secret: bytes = field(repr=False)
    episode_header: str
    origin_of: Callable[[Scope], str]
    shard_index: int
    shards: int
    max_episodes: int
    cleanup_s: float
    session_ttl_s: float = 86400.0
    tombstones: int = 16384
    mcp: McpRules = field(default_factory=McpRules)
