"""A server of stateful MCP by the SDK, as `SESSIONS_APP`: each session has a counter of its own.

A session that is idle for `STATEFUL_MCP_IDLE_S` ends. Its one tool `add` answers with the session's
total and the process that holds it. Nothing here knows shards; `McpSessions` does that.

Spec: docs/tools.md#mcp-sessions
"""

from __future__ import annotations

import os
from collections import Counter
from typing import Any, Final

from mcp.server.context import ServerRequestContext
from mcp.server.lowlevel import Server
from mcp.server.transport_security import TransportSecuritySettings
from mcp_types import (
    CallToolRequestParams,
    CallToolResult,
    ListToolsResult,
    PaginatedRequestParams,
    Tool,
)
from starlette.requests import Request

from sessions.tools.mcp_results import result_of
from sessions.tools.mcp_sessions import McpSessions

IDLE_VARIABLE: Final = "STATEFUL_MCP_IDLE_S"
_Context = ServerRequestContext[Any, Request]
_SCHEMA: Final = {"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]}


def make_app() -> McpSessions:
    """The application of one shard."""
    totals: Counter[str] = Counter()

    async def list_tools(_ctx: _Context, _params: PaginatedRequestParams | None) -> ListToolsResult:
        return ListToolsResult(tools=[Tool(name="add", input_schema=_SCHEMA)])

    async def call_tool(ctx: _Context, params: CallToolRequestParams) -> CallToolResult:
        assert ctx.request is not None
        session_id = ctx.request.headers.get("mcp-session-id", "")
        totals[session_id] += (params.arguments or {})["n"]
        return result_of({"total": totals[session_id], "pid": os.getpid()})

    server: Server[Any] = Server("stateful", on_list_tools=list_tools, on_call_tool=call_tool)
    idle_s = float(os.environ.get(IDLE_VARIABLE, "300"))
    everywhere = TransportSecuritySettings(enable_dns_rebinding_protection=False)
    app = server.streamable_http_app(
        json_response=True, session_idle_timeout=idle_s, transport_security=everywhere
    )
    return McpSessions(app, idle_s=2 * idle_s)
