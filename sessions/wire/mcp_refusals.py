"""The body of an error reply on the path of MCP.

There two kinds of reader meet: people and plain HTTP clients, who look for our one error shape, and
MCP clients, who take a body at a 4xx or 5xx for the server's word only if it is a JSON-RPC error.
So one body is both: JSON-RPC's `code` is a number, for which we take the HTTP status (no reserved
number), and our own code stands in `data`.

Spec: docs/tools.md#refusals-on-mcp
"""

from __future__ import annotations

import json
from typing import Final
from urllib.parse import unquote_to_bytes

from sessions.errors.client_visible import ClientVisibleError

MCP_PATH: Final = "/mcp"
_MCP_PATHS: Final = frozenset({MCP_PATH.encode(), MCP_PATH.encode() + b"/"})


def mcp_body_of(error: ClientVisibleError) -> bytes:
    """The body that clients of MCP and others can read.

    Args:
        error: What is answered.

    Returns:
        Compact ASCII JSON.
    """
    message, code = error.message, error.status
    ours = {"type": error.type, "param": error.param, "data": {"code": error.code}}
    body = {
        "jsonrpc": "2.0",
        "id": None,
        "error": {"code": code, "message": message, **ours},
        "detail": message,
    }
    return json.dumps(body, separators=(",", ":")).encode()


def is_mcp_path(path: bytes) -> bool:
    """Whether MCP is spoken on a path (percent-encoded, without the query)."""
    return (unquote_to_bytes(path) if b"%" in path else path) in _MCP_PATHS
