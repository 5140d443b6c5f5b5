"""A message of Anthropic's Messages API as the events of its streams.

The message is whole by then; it is told as that API does: `message_start`, each content block from
its start to its stop, `message_delta` with the reason of its end, `message_stop`. JSON in events is
ASCII and long texts come in pieces, as in the streams of OpenAI's form.

Must not know sessions or time.

Spec: docs/sessions.md#anthropic-clients
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from sessions.core.texts.json_text import JsonObject, render_ascii_json, render_json

_PIECE_CHARACTERS: Final = 4096


def event_of(body: JsonObject) -> bytes:
    """One event; its name is the type of its body."""
    return f"event: {body['type']}\ndata: {render_ascii_json(body)}\n\n".encode("ascii")


PING: Final = event_of({"type": "ping"})


def events_of(message: JsonObject) -> Iterator[bytes]:
    """Tell a message.

    Args:
        message: As `reply_of` makes it.

    Yields:
        Whole events.
    """
    usage = message["usage"]
    begun = {
        **message,
        "content": [],
        "stop_reason": None,
        "stop_sequence": None,
        "usage": {**usage, "output_tokens": 0},
    }
    yield event_of({"type": "message_start", "message": begun})
    for index, block in enumerate(message["content"]):
        empty, deltas = _told(block)
        yield event_of({"type": "content_block_start", "index": index, "content_block": empty})
        for delta in deltas:
            yield event_of({"type": "content_block_delta", "index": index, "delta": delta})
        yield event_of({"type": "content_block_stop", "index": index})
    end = {name: message[name] for name in ("stop_reason", "stop_sequence")}
    yield event_of({"type": "message_delta", "delta": end, "usage": usage})
    yield event_of({"type": "message_stop"})


def _told(block: JsonObject) -> tuple[JsonObject, Iterator[JsonObject]]:
    """A block as it begins, and what is added to it."""
    if block["type"] == "tool_use":
        return {**block, "input": {}}, _deltas_of(
            "input_json_delta", "partial_json", render_json(block["input"]).decode()
        )
    if block["type"] == "text":
        return {**block, "text": ""}, _deltas_of("text_delta", "text", block["text"])
    return {**block, "thinking": "", "signature": ""}, _thought_deltas_of(block)


def _thought_deltas_of(block: JsonObject) -> Iterator[JsonObject]:
    yield from _deltas_of("thinking_delta", "thinking", block["thinking"])
    yield {"type": "signature_delta", "signature": block["signature"]}


def _deltas_of(kind: str, field: str, text: str) -> Iterator[JsonObject]:
    for start in range(0, len(text), _PIECE_CHARACTERS):
        yield {"type": kind, field: text[start : start + _PIECE_CHARACTERS]}
