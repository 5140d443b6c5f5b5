"""A request of Anthropic's Messages API as the chat request that it stands for.

What both APIs have is renamed, what only Anthropic's service has is left out if a turn is the same
without it, and refused if not. All other fields pass as in a chat request: SDKs add fields of the
engine with `extra_body`.

Must not know sessions, templates or HTTP.

Spec: docs/sessions.md#anthropic-clients
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Final

from sessions.core.forms.chat_request import ChatRequest, chat_request_of
from sessions.core.messages_api.content import messages_of
from sessions.core.texts.json_text import Json, JsonObject
from sessions.core.texts.object_body import parse_object_body
from sessions.errors.client_visible import RequestError
from sessions.errors.turns import UnsupportedContentError

# They change nothing of what the model sees or says: caching, billing, and where things run.
_LEFT_OUT: Final = frozenset(
    {
        "anthropic_beta",
        "anthropic_version",
        "betas",
        "cache_control",
        "context_management",
        "diagnostics",
        "inference_geo",
        "metadata",
        "service_tier",
        "speed",
        "user_profile_id",
        "workspace_id",
    }
)
# Read together with others.
_READ_APART: Final = frozenset({"messages", "system", "thinking", "chat_template_kwargs"})
# A client that sets one of these counts on work that nobody does here.
_REFUSED: Final = ("container", "mcp_servers", "output_format")
_NOT_COPIED: Final = _LEFT_OUT | _READ_APART | frozenset(_REFUSED)
_CHOICES: Final[Mapping[str, str]] = MappingProxyType(
    {"auto": "auto", "any": "required", "none": "none"}
)
# The names that templates have for one switch.
_THINKING: Final = ("enable_thinking", "thinking")
_SWITCHES: Final = frozenset({*_THINKING, "thinking_mode"})
_SHOWN_CHARACTERS: Final = 40


def parse_messages_request(raw: bytes, *, is_counted: bool = False) -> ChatRequest:
    """Parse and check the body of a request.

    Args:
        raw: The request body.
        is_counted: Its tokens shall be counted only, so it may end anywhere.

    Returns:
        The chat request that it stands for.

    Raises:
        RequestError: A field is not what it must be, or names what cannot be had; `param` names
            it.
    """
    body = parse_object_body(raw)
    try:
        chat = _chat_body_of(body)
    except RecursionError as error:
        raise RequestError("the body is nested too deeply") from error
    if not is_counted and body["messages"][-1]["role"] == "assistant":
        place = f"messages[{len(body['messages']) - 1}]"
        raise RequestError(
            f"{place} is the assistant's: a reply cannot be begun for the model", param=place
        )
    return chat_request_of(chat)


def _chat_body_of(body: JsonObject) -> JsonObject:
    for field in _REFUSED:
        if body.get(field):
            _refuse_service(field)
    found: JsonObject = {}
    for field, value in body.items():
        if field == "messages":
            found[field] = messages_of(body.get("system"), value)
        elif value is not None and field not in _NOT_COPIED:
            found |= _CONVERTED[field](value) if field in _CONVERTED else {field: value}
    if "messages" not in found:
        raise RequestError("messages must be a non-empty array", param="messages")
    kwargs = _template_kwargs_of(body)
    return found if kwargs is None else {**found, "chat_template_kwargs": kwargs}


def _template_kwargs_of(body: JsonObject) -> Json:
    """The client's own kwargs, and the switch of thinking unless they have it."""
    own, thinking = body.get("chat_template_kwargs"), body.get("thinking")
    if thinking is None:
        return own
    kind = thinking.get("type") if isinstance(thinking, dict) else None
    if not isinstance(kind, str):
        raise RequestError("thinking must be an object with a type", param="thinking")
    if kind not in ("enabled", "disabled"):
        return own  # the model decides, as it does without a word
    told: Json = {} if own is None else own
    if not isinstance(told, dict) or not _SWITCHES.isdisjoint(told):
        return own
    return {**told, **dict.fromkeys(_THINKING, kind == "enabled")}


def _stop_of(value: Json) -> JsonObject:
    if not isinstance(value, list) or not all(isinstance(text, str) for text in value):
        raise RequestError("stop_sequences must be an array of strings", param="stop_sequences")
    return {"stop": value} if value else {}


def _tools_of(value: Json) -> JsonObject:
    if not isinstance(value, list):
        raise RequestError("tools must be an array of objects", param="tools")
    return {"tools": [_tool_of(tool, f"tools[{index}]") for index, tool in enumerate(value)]}


def _tool_of(tool: Json, place: str) -> JsonObject:
    if not isinstance(tool, dict):
        raise RequestError(f"{place} must be an object", param=place)
    kind = tool.get("type")
    if kind not in (None, "custom"):
        raise UnsupportedContentError(
            f"{place} is of type {str(kind)[:_SHOWN_CHARACTERS]!r}, which only Anthropic's service"
            " has: describe the tool with an input_schema",
            param=f"{place}.type",
        )
    name, schema, description = (tool.get(k) for k in ("name", "input_schema", "description"))
    if not isinstance(name, str):
        raise RequestError(f"{place}.name must be a string", param=f"{place}.name")
    if not isinstance(schema, dict):
        raise RequestError(f"{place}.input_schema must be an object", param=f"{place}.input_schema")
    function: JsonObject = {"name": name}
    if description is not None:
        function["description"] = description
    function["parameters"] = schema
    return {"type": "function", "function": function}


def _tool_choice_of(value: Json) -> JsonObject:
    kind = value.get("type") if isinstance(value, dict) else None
    found: JsonObject = {}
    if kind == "tool" and isinstance(value.get("name"), str):
        found["tool_choice"] = {"type": "function", "function": {"name": value["name"]}}
    elif isinstance(kind, str) and kind in _CHOICES:
        found["tool_choice"] = _CHOICES[kind]
    else:
        raise RequestError(
            "tool_choice must be an object of type auto, any, none, or tool with a name",
            param="tool_choice",
        )
    if value.get("disable_parallel_tool_use") is True:
        found["parallel_tool_calls"] = False
    return found


def _output_config_of(value: Json) -> JsonObject:
    """How hard to try is left to the model; a form of the output would have to be kept to."""
    if not isinstance(value, dict):
        raise RequestError("output_config must be an object", param="output_config")
    if value.get("format"):
        _refuse_service("output_config.format")
    return {}


def _refuse_service(field: str) -> None:
    raise RequestError(
        f"{field} is not taken: it asks for what only Anthropic's service does", param=field
    )


_CONVERTED: Final[Mapping[str, Callable[[Json], JsonObject]]] = MappingProxyType(
    {
        "stop_sequences": _stop_of,
        "tools": _tools_of,
        "tool_choice": _tool_choice_of,
        "output_config": _output_config_of,
    }
)
