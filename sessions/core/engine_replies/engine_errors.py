"""The engine's refusals: passed on as they are, wrapped when they are no JSON.

Status, body and end-to-end headers pass. One kind is translated: a prompt that the engine cannot
hold becomes 400 `context_length_exceeded`, which harnesses know, whatever words the engine uses.

Must not know sessions.

Spec: docs/errors.md#engine
"""

from __future__ import annotations

import re
from http import HTTPStatus
from typing import Final

from sessions.core.engine_replies.replay_fields import blank_replay
from sessions.core.texts.json_text import Json, JsonObject, parse_engine_json, render_json
from sessions.errors.client_visible import error_body
from sessions.errors.turns import ContextLengthError

_SHOWN_BYTES: Final = 4096
_ERROR_FROM: Final = HTTPStatus.BAD_REQUEST
_OVERFLOW_STATUSES: Final = frozenset(
    {HTTPStatus.BAD_REQUEST, HTTPStatus.REQUEST_ENTITY_TOO_LARGE, HTTPStatus.UNPROCESSABLE_ENTITY}
)
# The wordings of SGLang 0.5 and vLLM 0.28 to 0.32; their error codes do not tell.
_OVERFLOW_WORDS: Final = re.compile(
    r"maximum context length|maximum model length|model's context length"
    r"|max_tokens must be at least 1, got (?:0|-)",
    re.IGNORECASE,
)


def is_error(status: int) -> bool:
    """Whether a status is a refusal or a failure (4xx, 5xx)."""
    return status >= _ERROR_FROM


def context_error_of(status: int, body: bytes, asked: JsonObject) -> ContextLengthError | None:
    """The error for a prompt that the engine cannot hold, or None if it refused something else.

    Args:
        status: The engine's.
        body: Likewise.
        asked: The client's request. For a full context vLLM says that no token is left to sample,
            in the words with which it refuses a client that asks for none.
    """
    limit = asked.get("max_completion_tokens", asked.get("max_tokens"))
    asks_for_none = type(limit) is int and limit < 1
    if status not in _OVERFLOW_STATUSES or asks_for_none:
        return None
    message, code = message_and_code_of(body)
    if code == ContextLengthError.code or _OVERFLOW_WORDS.search(message):
        return ContextLengthError(message, param="messages")
    return None


def error_bytes_of(status: int, body: bytes) -> bytes:
    """The body of an error reply for the client.

    Args:
        status: The engine's status.
        body: The engine's body, without replay fields.

    Returns:
        The body itself if it is JSON; else the one error shape around its text.
    """
    try:
        value, is_strict = parse_engine_json(body)
    except ValueError:
        text = blank_replay(body[:_SHOWN_BYTES]).decode(errors="replace").strip()
        message = text or f"the engine answered {status} without a body"
        return error_body(message, "upstream_error", None, "engine_error")
    return body if is_strict else render_json(value)


def event_error_of(status: int, body: bytes) -> bytes:
    """The same for an event of a stream: always the one error shape, in ASCII."""
    message, code = message_and_code_of(body)
    text = message or f"the engine answered {status}"
    return error_body(text, "upstream_error", None, code or "engine_error")


def message_and_code_of(body: bytes) -> tuple[str, str]:
    """What an engine's error says: flat or wrapped in `error`, or any text."""
    try:
        value, _ = parse_engine_json(body)
    except ValueError:
        return blank_replay(body[:_SHOWN_BYTES]).decode(errors="replace").strip(), ""
    found: Json = value.get("error", value) if isinstance(value, dict) else value
    if isinstance(found, dict):
        message = found.get("message", found.get("detail", ""))
        return str(message), str(found.get("code") or "")
    return (found, "") if isinstance(found, str) else ("", "")
