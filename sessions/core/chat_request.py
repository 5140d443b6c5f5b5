"""A chat request: what the client asked for, and the body that the engine gets instead.

The client's fields pass through in their order; the ones that token-in-token-out needs are set,
the ones that would stream are taken out (a reply with token ids comes only whole).

Must not know sessions, templates or HTTP.

Spec: docs/sessions.md#chat-request
"""

from __future__ import annotations

import secrets
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from sessions.core.json_text import Json, JsonObject, parse_client_json, render_json
from sessions.core.shared_text import IdsText, share
from sessions.errors import RequestError

# Without tools these say nothing, and some engines refuse them.
_IDLE_TOOL_CHOICES: Final = (None, "none", "auto")
_MARK_BYTES: Final = 16  # nobody can guess them


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


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineBody:
    """A body for the engine: compact JSON, what is long in it shared with the turn before.

    Attributes:
        parts: Together the text; none empty.
        messages: Those that are the messages, but for the bracket at the end.
    """

    parts: tuple[bytes, ...]
    messages: tuple[bytes, ...]

    def whole(self) -> bytes:
        """The text, copied."""
        return b"".join(self.parts)


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
    try:
        body = parse_client_json(raw)
    except ValueError as error:
        raise RequestError(f"the body is not valid JSON: {error}") from error
    if not isinstance(body, dict):
        raise RequestError("the body must be a JSON object")
    messages = _messages_in(body)
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


def engine_body_of(
    request: ChatRequest,
    *,
    input_ids: IdsText,
    template_kwargs: JsonObject,
    routing_replay: bool,
    replay_start: int = 0,
    earlier_messages: Sequence[bytes] = (),
) -> EngineBody:
    """Write the body that the engine gets.

    Args:
        request: The client's request.
        input_ids: The prompt's token ids.
        template_kwargs: The kwargs that made them; the engine sets its parsers up from these.
        routing_replay: Whether to ask for the routed experts.
        replay_start: Index of the first token whose experts are asked for; 0 for all.
        earlier_messages: `EngineBody.messages` of the turn before.

    Returns:
        Compact JSON, in parts.

    Raises:
        RequestError: The body is nested too deeply to be written.
    """
    body = dict(request.body)
    body.pop("stream", None)
    body.pop("stream_options", None)
    messages_mark, ids_mark = secrets.token_hex(_MARK_BYTES), secrets.token_hex(_MARK_BYTES)
    body["messages"] = messages_mark
    if request.tools is None:
        body.pop("tools", None)
        body.pop("parallel_tool_calls", None)
        if body.get("tool_choice") in _IDLE_TOOL_CHOICES:
            body.pop("tool_choice", None)
    body |= {"logprobs": True, "return_meta_info": True, "no_stop_trim": False}
    body["return_prompt_token_ids"] = True
    if routing_replay:
        body["return_routed_experts"] = True
        if replay_start:
            body["routed_experts_start_len"] = replay_start
        else:
            body.pop("routed_experts_start_len", None)
    body["input_ids"] = ids_mark
    body["chat_template_kwargs"] = template_kwargs
    if not template_kwargs:
        del body["chat_template_kwargs"]
    try:
        text = render_json(body)
        told = render_json([_engine_message_of(message) for message in request.messages])
    except RecursionError as error:
        raise RequestError("the body is nested too deeply") from error
    messages = share(told[:-1], earlier_messages)
    long_parts = {messages_mark: (*messages, b"]"), ids_mark: input_ids.json_parts}
    return EngineBody(parts=_filled(text, long_parts), messages=messages)


def _filled(text: bytes, parts: Mapping[str, Sequence[bytes]]) -> tuple[bytes, ...]:
    """Put parts in the places of strings, each of which stands in the text once."""
    quoted = {b'"%s"' % mark.encode(): found for mark, found in parts.items()}
    filled: list[bytes] = []
    done = 0
    for at, mark in sorted((text.index(mark), mark) for mark in quoted):
        filled += [text[done:at], *quoted[mark]]
        done = at + len(mark)
    return (*filled, text[done:])


def _messages_in(body: JsonObject) -> list[JsonObject]:
    messages: Json = body.get("messages")
    if not isinstance(messages, list) or not messages:
        raise RequestError("messages must be a non-empty array", param="messages")
    for index, message in enumerate(messages):
        if not isinstance(message, dict):
            raise RequestError(f"messages[{index}] must be an object", param=f"messages[{index}]")
    return messages


def _engine_message_of(message: JsonObject) -> JsonObject:
    """The message as it is, but for null content: engines take that from the assistant only."""
    if message.get("content") is not None or message.get("role") == "assistant":
        return message
    return {**message, "content": ""}


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
