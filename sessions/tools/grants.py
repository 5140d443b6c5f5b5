"""Grants: what an agent gets to call an episode's tools, one for each transport.

All carry the episode's token in the same header, so every request of an agent reaches the shard
that runs the episode, over whichever connection it comes.

Spec: docs/tools.md#grants
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

DIRECT_PATH: Final = "/tools"
MCP_PATH: Final = "/mcp"


@dataclass(frozen=True, slots=True, kw_only=True)
class DirectHttpGrant:
    """Tools over plain HTTP: `POST {base_url}/tools/<name>` with a JSON object.

    Attributes:
        base_url: Without a slash at the end.
        headers: To send with every call; they hold the secret token.
    """

    base_url: str
    headers: Mapping[str, str] = field(repr=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class McpGrant:
    """Tools over MCP, Streamable HTTP.

    Attributes:
        url: Of the endpoint.
        headers: To send with every request; they hold the secret token.
    """

    url: str
    headers: Mapping[str, str] = field(repr=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class Grants:
    """All of one episode.

    Attributes:
        direct_http: For plain HTTP.
        mcp: For MCP.
    """

    direct_http: DirectHttpGrant
    mcp: McpGrant

    def to_json(self) -> dict[str, Any]:
        """For the agent: `direct_http {base_url, headers}` and `mcp {url, headers}`."""
        return {
            "direct_http": {
                "base_url": self.direct_http.base_url,
                "headers": dict(self.direct_http.headers),
            },
            "mcp": {"url": self.mcp.url, "headers": dict(self.mcp.headers)},
        }


def grants_of(origin: str, header: str, token: str) -> Grants:
    """Make the grants of an episode.

    Args:
        origin: Scheme and authority of this server, with no slash at the end.
        header: Name of the token's header.
        token: Signed.
    """
    headers = {header: token}
    return Grants(
        direct_http=DirectHttpGrant(base_url=origin, headers=headers),
        mcp=McpGrant(url=origin + MCP_PATH, headers=headers),
    )
