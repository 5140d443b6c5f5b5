"""What the conformance suite of MCP asks of a server's tools, behind our endpoint.

The suite sends no token, so every request is served the same tools; all else is as in an
environment. As `SESSIONS_APP` it runs on real groups:

    SESSIONS_APP=tests.support.conformance_app:make_app gunicorn -c gunicorn_conf.py

Spec: docs/tools.md#conformance
"""

from __future__ import annotations

import base64
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import Annotated, Any, Final

import msgspec
from starlette.applications import Starlette
from starlette.middleware import Middleware

from sessions.errors.episodes import ToolError
from sessions.routing.episodes import EpisodeId
from sessions.settings import read_settings
from sessions.tools.http_json import Answered
from sessions.tools.mcp_endpoint import McpEndpoint
from sessions.tools.mcp_rules import McpRules
from sessions.tools.served_episode import ServedEpisode
from sessions.tools.tool import tool_of

_DATA: Final = base64.b64encode(b"a few bytes").decode()
_IMAGE: Final = {"type": "image", "data": _DATA, "mimeType": "image/png"}
_MIRRORED: Final = {"x-mcp-header": "Greeting"}
# What a listing must not lose; it says nothing that a call is checked against.
_MUCH: Final = {
    "$schema": "https://json-schema.org/draft/2020-12/schema",
    "$defs": {"address": {"$anchor": "place", "type": "object"}},
    "allOf": [{"anyOf": [{"required": []}, {"required": ["name"]}]}],
    "if": {"required": ["name"]},
    "then": {"minProperties": 1},
    "else": {"maxProperties": 0},
}


def test_simple_text() -> str:
    """Return a text."""
    return "This is a simple text response for testing."


def test_image_content() -> dict[str, Any]:
    """Return an image."""
    return _IMAGE


def test_audio_content() -> dict[str, Any]:
    """Return audio."""
    return {"type": "audio", "data": _DATA, "mimeType": "audio/wav"}


def test_embedded_resource() -> dict[str, Any]:
    """Return a resource."""
    return _resource("test://embedded-resource", "text/plain", "This is an embedded resource.")


def test_multiple_content_types() -> list[dict[str, Any]]:
    """Return content of several types."""
    told = {"type": "text", "text": "Multiple content types test:"}
    return [told, _IMAGE, _resource("test://mixed", "application/json", '{"test":"data"}')]


def test_error_handling() -> None:
    """Fail."""
    raise ToolError("This tool intentionally returns an error for testing")


def json_schema_2020_12_tool(name: str = "") -> str:
    """Have a schema with much in it."""
    return name


def mirrored(greeting: Annotated[str, msgspec.Meta(extra_json_schema=_MIRRORED)]) -> str:
    """Have an argument that clients repeat in a header."""
    return greeting


class AnyRequest:
    """Gives every request the same tools."""

    def __init__(self) -> None:
        plain = (
            test_simple_text,
            test_image_content,
            test_audio_content,
            test_embedded_resource,
            test_multiple_content_types,
            test_error_handling,
            mirrored,
        )
        rich = tool_of(json_schema_2020_12_tool)
        rich = replace(rich, input_schema={**rich.input_schema, **_MUCH})
        tools = [*[tool_of(function) for function in plain], rich]
        self._served = ServedEpisode(EpisodeId(rollout_id="conformance"), "", tools, [])

    def tools_for(self, headers: Mapping[str, str]) -> ServedEpisode:
        """See `ToolsOfRequest.tools_for`."""
        del headers
        return self._served


def make_app() -> Starlette:
    """The application of one shard."""
    settings = read_settings()
    endpoint = McpEndpoint(
        AnyRequest(),
        McpRules(has_json_replies=settings.mcp_replies == "json", allowed_hosts=settings.mcp_hosts),
    )

    @asynccontextmanager
    async def life(_app: Starlette) -> AsyncIterator[None]:
        async with endpoint.serving():
            yield

    return Starlette(routes=endpoint.routes, middleware=[Middleware(Answered)], lifespan=life)


def _resource(uri: str, media_type: str, text: str) -> dict[str, Any]:
    return {"type": "resource", "resource": {"uri": uri, "mimeType": media_type, "text": text}}
