"""The body that the engine gets instead of the client's: its fields, our prompt, what is shared.

The client's fields pass through in their order; the dialect sets the ones that token-in-token-out
needs. What would stream is taken out, since a reply with token ids comes only whole. The messages
and the ids, which are long, are written once and shared with the turn before.

Must not know sessions, templates or HTTP.

Spec: docs/sessions.md#chat-request
"""

from __future__ import annotations

import secrets
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from sessions.core.dialects.dialect import EngineDialect, ReplayWish
from sessions.core.forms.chat_request import ChatRequest
from sessions.core.texts.json_text import JsonObject, render_json
from sessions.core.texts.shared_text import IdsText, share
from sessions.errors.client_visible import RequestError

# Without tools these say nothing, and some engines refuse them.
_IDLE_TOOL_CHOICES: Final = (None, "none", "auto")
_MARK_BYTES: Final = 16  # nobody can guess them


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


def engine_body_of(
    request: ChatRequest,
    dialect: EngineDialect,
    *,
    prompt: IdsText,
    template_kwargs: JsonObject,
    replay: ReplayWish,
    earlier_messages: Sequence[bytes] = (),
) -> EngineBody:
    """Write the body that the engine gets.

    Args:
        request: The client's request.
        dialect: Of the engine.
        prompt: The prompt's token ids.
        template_kwargs: The kwargs that made them; the engine sets its parsers up from these.
        replay: What is asked for of routed experts.
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
    dialect.put(body, ids_mark, replay)
    body["chat_template_kwargs"] = template_kwargs
    if not template_kwargs:
        del body["chat_template_kwargs"]
    try:
        text = render_json(body)
        told = render_json([_engine_message_of(message) for message in request.messages])
    except RecursionError as error:
        raise RequestError("the body is nested too deeply") from error
    messages = share(told[:-1], earlier_messages)
    long_parts = {messages_mark: (*messages, b"]"), ids_mark: prompt.json_parts}
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


def _engine_message_of(message: JsonObject) -> JsonObject:
    """The message as it is, but for null content: engines take that from the assistant only."""
    if message.get("content") is not None or message.get("role") == "assistant":
        return message
    return {**message, "content": ""}
