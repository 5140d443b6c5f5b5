"""Tools and their results as MCP says them: pure translations to the SDK's types.

A result is what a tool returned, as JSON says it. A text stays a text; an object is told twice, as
text for a model and as structured content for a program; anything else is its JSON as text. What
already looks like content of MCP (an image, audio or a resource, or a list of such and of texts)
is sent as such, so that a tool can show a picture. What a tool says against its arguments or its
own doing is a result with `isError`, which the agent's model gets to read.

Spec: docs/tools.md#mcp
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Any, Final

from mcp_types import CallToolResult, ContentBlock, TextContent
from mcp_types import Tool as ToolListing
from pydantic import TypeAdapter, ValidationError

from sessions.errors.client_visible import ClientVisibleError
from sessions.tools.tool import Tool

_CONTENT: Final[TypeAdapter[ContentBlock]] = TypeAdapter(ContentBlock)
_TYPES: Final = frozenset({"image", "audio", "resource"})
_TYPES_IN_LIST: Final = _TYPES | {"text"}


def listing_of(tools: Iterable[Tool]) -> list[ToolListing]:
    """What `tools/list` shows of tools, order kept."""
    return [
        ToolListing(
            name=tool.name,
            description=tool.description or None,
            input_schema=dict(tool.input_schema),
        )
        for tool in tools
    ]


def result_of(value: Any) -> CallToolResult:  # noqa: ANN401 - what JSON can say
    """The reply to a call that a tool answered.

    Args:
        value: The tool's result, as JSON says it.
    """
    blocks = _blocks_of(value)
    if blocks is not None:
        return CallToolResult(content=blocks)
    if isinstance(value, str):
        return CallToolResult(content=[_text_of(value)])
    text = _text_of(json.dumps(value, ensure_ascii=False, separators=(",", ":")))
    structured = value if isinstance(value, dict) else None
    return CallToolResult(content=[text], structured_content=structured)


def failure_of(error: ClientVisibleError) -> CallToolResult:
    """The reply to a call that went wrong, for the agent's model to read."""
    return CallToolResult(content=[_text_of(error.message)], is_error=True)


def _text_of(text: str) -> TextContent:
    # A lone surrogate is no text that can be sent.
    return TextContent(type="text", text=text.encode(errors="replace").decode())


def _blocks_of(value: object) -> list[ContentBlock] | None:
    """Content of MCP, or None if the value is anything else."""
    items, known = (value, _TYPES_IN_LIST) if isinstance(value, list) else ([value], _TYPES)
    types = [item.get("type") if isinstance(item, dict) else None for item in items]
    if not types or not all(isinstance(kind, str) and kind in known for kind in types):
        return None
    try:
        return [_CONTENT.validate_python(item, by_name=False) for item in items]
    except (ValidationError, TypeError):
        return None
