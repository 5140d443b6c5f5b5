"""What an operator decides about MCP.

Spec: docs/tools.md#mcp
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class McpRules:
    """Of one server.

    Attributes:
        has_json_replies: Replies are plain JSON; else event streams, where the protocol's
            generation leaves the choice.
        allowed_hosts: Hosts that are served, see `check_host`; empty for any.
    """

    has_json_replies: bool = True
    allowed_hosts: frozenset[str] = frozenset()
