"""A chat request: what the client asked for, parsed and checked.

Must not know sessions, templates or HTTP.

Spec: docs/sessions.md#chat-request
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Final

from sessions.core.texts.json_text import Json, JsonObject
from sessions.core.texts.object_body import parse_object_body
from sessions.errors.client_visible import RequestError

_VLLM_PROMPT: Final = "kv_transfer_params.prompt_token_ids"
# A client that sets one of these believes that it makes the prompt or the record.
_REFUSED: Final[Mapping[str, str]] = MappingProxyType(
    {
        "input_ids": "the session makes the prompt of its messages",
        _VLLM_PROMPT: "the session makes the prompt of its messages",
        "routed_experts_start_len": "the session knows which rows its records have",
        "routed_experts_prompt_start": "the session knows which rows its records have",
        "logprob_start_len": "the record has the log probabilities of what was sampled",
        "lora_path": "all sessions are sampled from the engine's own weights",
    }
)


@dataclass(frozen=True, slots=True, kw_only=True)
class ChatRequest:
    """One chat request, checked.

    Attributes:
        body: The whole body as parsed; not to be changed.
        messages: Its messages, shared with the body.
        tools: Its tools; None when there are none.
        template_kwargs: Its `chat_template_kwargs`; empty when there are none.
        wants_stream: The reply shall be server-sent events.
        wants_usage: The stream shall end with a usage chunk.
    """

    body: JsonObject
    messages: list[JsonObject]
    tools: list[JsonObject] | None
    template_kwargs: JsonObject
    wants_stream: bool
    wants_usage: bool

    def asks(self, field: str) -> bool:
        """Whether the client itself set a boolean field to true."""
        return self.body.get(field) is True


def parse_chat_request(raw: bytes) -> ChatRequest:
    """Parse and check the body of a chat request.

    Args:
        raw: The request body, JSON whatever its content type says.

    Returns:
        The request.

    Raises:
        RequestError: Not JSON, not an object, or a field that is not what it must be; `param`
            names the field.
    """
    return chat_request_of(parse_object_body(raw))


def chat_request_of(body: JsonObject) -> ChatRequest:
    """Check the body of a chat request.

    Args:
        body: As parsed; shared with the request.

    Raises:
        RequestError: A field is not what it must be; `param` names it.
    """
    messages = _messages_in(body)
    _check_taken(body)
    choices = body.get("n")
    if choices not in (None, 1) or choices is True:
        raise RequestError(
            "n must be 1: a turn of a session has one reply (open more sessions for more samples)",
            param="n",
        )
    options = _object_in(body, "stream_options")
    return ChatRequest(
        body=body,
        messages=messages,
        tools=_tools_in(body),
        template_kwargs=_object_in(body, "chat_template_kwargs"),
        wants_stream=_flag_in(body, "stream"),
        wants_usage=bool(options.get("include_usage")),
    )


def _check_taken(body: JsonObject) -> None:
    transfer = body.get("kv_transfer_params")
    ids = transfer.get("prompt_token_ids") if isinstance(transfer, dict) else None
    for field, reason in _REFUSED.items():
        if (ids if field == _VLLM_PROMPT else body.get(field)) is not None:
            raise RequestError(f"{field} is not taken in a session: {reason}", param=field)


def _messages_in(body: JsonObject) -> list[JsonObject]:
    messages: Json = body.get("messages")
    if not isinstance(messages, list) or not messages:
        raise RequestError("messages must be a non-empty array", param="messages")
    for index, message in enumerate(messages):
        if not isinstance(message, dict):
            raise RequestError(f"messages[{index}] must be an object", param=f"messages[{index}]")
    return messages


def _tools_in(body: JsonObject) -> list[JsonObject] | None:
    tools: Json = body.get("tools")
    if tools is None or tools == []:
        return None
    if not isinstance(tools, list) or not all(isinstance(tool, dict) for tool in tools):
        raise RequestError("tools must be an array of objects", param="tools")
    return tools


def _object_in(body: JsonObject, field: str) -> JsonObject:
    value: Json = body.get(field)
    if value is None:
        return {}
    if not isinstance(value, dict):
        raise RequestError(f"{field} must be an object", param=field)
    return value


def _flag_in(body: JsonObject, field: str) -> bool:
    value: Json = body.get(field)
    if not isinstance(value, bool | None):
        raise RequestError(f"{field} must be true or false", param=field)
    return value is True
