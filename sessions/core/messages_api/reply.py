"""A sampled turn as a message of Anthropic's Messages API.

Must not know sessions or HTTP.

Spec: docs/sessions.md#anthropic-clients
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from types import MappingProxyType
from typing import Final

from sessions.core.engine_replies.sampled import Sampled
from sessions.core.messages_api.tool_inputs import input_of
from sessions.core.texts.json_text import Json, JsonObject

# Clients drop a thought without one, and it must come back. It is the same for all: what comes
# back is compared, so there is nothing to sign.
SIGNATURE: Final = "c2Vzc2lsZQ=="

_STOP_REASONS: Final[Mapping[str, str]] = MappingProxyType(
    {
        "abort": "max_tokens",  # cut off, too; that API has no word for it
        "content_filter": "refusal",
        "function_call": "tool_use",
        "length": "max_tokens",
        "stop": "end_turn",
        "tool_calls": "tool_use",
    }
)
# Where engines tell which stop text they met; a number there is a token.
_MATCHED: Final = ("matched_stop", "stop_reason")


def reply_of(sampled: Sampled, stops: Json) -> JsonObject:
    """The whole message.

    Args:
        sampled: What the engine sampled.
        stops: The stop texts that it was asked for: one, a list, or None.
    """
    reply = sampled.reply
    reason, stop = _stop_of(sampled, stops)
    return {
        "id": _text_in(reply, "id"),
        "type": "message",
        "role": "assistant",
        "model": _text_in(reply, "model"),
        "content": list(_blocks_of(sampled.message)),
        "stop_reason": reason,
        "stop_sequence": stop,
        "usage": _usage_of(sampled),
    }


def _blocks_of(message: JsonObject) -> Iterator[JsonObject]:
    """Thought, text, calls; none that is empty, since that API refuses those."""
    if thought := message.get("reasoning_content"):
        yield {"type": "thinking", "thinking": thought, "signature": SIGNATURE}
    if text := message.get("content"):
        yield {"type": "text", "text": text}
    for call in message.get("tool_calls") or ():
        function = call["function"]
        yield {
            "type": "tool_use",
            "id": _text_in(call, "id"),
            "name": function["name"],
            "input": input_of(function.get("arguments")),
        }


def _stop_of(sampled: Sampled, stops: Json) -> tuple[str, str | None]:
    reason = _STOP_REASONS.get(sampled.finish_reason, "end_turn")
    if reason == "end_turn":
        choice = sampled.reply["choices"][0]
        known = [stops] if isinstance(stops, str) else stops or ()
        for found in (choice.get(name) for name in _MATCHED):
            if isinstance(found, str) and found in known:
                return "stop_sequence", found
        if sampled.message.get("tool_calls"):
            return "tool_use", None  # some engines do not say so
    return reason, None


def _usage_of(sampled: Sampled) -> JsonObject:
    """Tokens; what the engine had cached is counted apart, as that API does."""
    cached = min(sampled.cached_count, sampled.prompt_count)
    return {
        "input_tokens": sampled.prompt_count - cached,
        "cache_creation_input_tokens": 0,
        "cache_read_input_tokens": cached,
        "output_tokens": len(sampled.token_ids),
    }


def _text_in(holder: JsonObject, field: str) -> str:
    value = holder.get(field)
    return value if isinstance(value, str) else ""
