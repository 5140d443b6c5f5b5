r"""A committed turn as server-sent events, in the form of OpenAI's chat streams.

The engine's reply is whole by then; it is told as deltas: the role, the reasoning, the content, the
tool calls, the finish reason, the usage if it was asked for, and `[DONE]`. JSON in events is ASCII,
because U+2028, U+0085 and others end a line for some clients; long texts come in pieces, because
some clients limit the length of a line.

Must not know sessions or time.

Spec: docs/sessions.md#streams
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from sessions.core.texts.json_text import JsonObject, render_ascii_json

KEEPALIVE_COMMENT: Final = b": waiting for the engine\n\n"
UNRECORDED_COMMENT: Final = b": x-turn-recorded: false\n\n"

# A line stays far below the 64 KiB at which common readers stop, even if each character is
# escaped to twelve (a surrogate pair).
_PIECE_CHARACTERS: Final = 4096
_COPIED: Final[tuple[str, ...]] = ("id", "created", "model", "service_tier", "system_fingerprint")
_TOLD_APART: Final = frozenset(
    {"role", "content", "reasoning", "reasoning_content", "tool_calls", "function_call"}
)
_CHOICE_EXTRAS: Final[tuple[str, ...]] = ("matched_stop", "stop_reason")


def events_of(reply: JsonObject, *, has_usage: bool, has_logprobs: bool) -> Iterator[bytes]:
    """Tell a reply as events.

    Args:
        reply: The engine's reply, replay fields taken out; only its first choice is told.
        has_usage: The client asked for a usage chunk; all other chunks then say `usage: null`.
        has_logprobs: The client asked for log probabilities; they come with the first content.

    Yields:
        Whole events, the last one `[DONE]`.
    """
    choice: JsonObject = reply["choices"][0]
    frame = {key: reply[key] for key in _COPIED if key in reply}
    frame["object"] = "chat.completion.chunk"

    def chunk(choices: list[JsonObject], **extra: object) -> bytes:
        usage = {"usage": None} if has_usage else {}
        return event_of(render_ascii_json({**frame, "choices": choices, **usage, **extra}))

    logprobs = choice.get("logprobs") if has_logprobs else None
    for delta in _deltas_of(choice["message"]):
        told = {"index": 0, "delta": delta, "logprobs": None, "finish_reason": None}
        if logprobs is not None and "role" not in delta:
            told["logprobs"], logprobs = logprobs, None
        yield chunk([told])
    last = {key: choice[key] for key in _CHOICE_EXTRAS if key in choice}
    finish = choice.get("finish_reason")
    yield chunk([{"index": 0, "delta": {}, "logprobs": logprobs, "finish_reason": finish, **last}])
    if has_usage:
        yield chunk([], usage=reply.get("usage"))
    yield event_of("[DONE]")


def event_of(data: str) -> bytes:
    """One event; `data` is ASCII without line breaks."""
    return b"data: " + data.encode("ascii") + b"\n\n"


def _deltas_of(message: JsonObject) -> Iterator[JsonObject]:
    others = {k: v for k, v in message.items() if k not in _TOLD_APART and v is not None}
    yield {"role": "assistant", "content": "", **others}
    for piece in _pieces_of(message.get("reasoning_content") or ""):
        # Both names in one delta: a reader that takes either must not read the text twice.
        is_same = message.get("reasoning") == message["reasoning_content"]
        yield {"reasoning_content": piece, **({"reasoning": piece} if is_same else {})}
    if message.get("reasoning") != message.get("reasoning_content"):
        yield from ({"reasoning": piece} for piece in _pieces_of(message.get("reasoning") or ""))
    yield from ({"content": piece} for piece in _pieces_of(message.get("content") or ""))
    for index, call in enumerate(message.get("tool_calls") or []):
        yield from _call_deltas_of({**call, "index": index})


def _call_deltas_of(call: JsonObject) -> Iterator[JsonObject]:
    """The call with its name, then its arguments in pieces."""
    function = call["function"]
    arguments = function.get("arguments")
    text = arguments if isinstance(arguments, str) else ""
    if arguments is not None and not isinstance(arguments, str):
        text = render_ascii_json(arguments)
    first, *rest = [*_pieces_of(text)] or [""]
    yield {"tool_calls": [{**call, "function": {**function, "arguments": first}}]}
    for piece in rest:
        yield {"tool_calls": [{"index": call["index"], "function": {"arguments": piece}}]}


def _pieces_of(text: str) -> Iterator[str]:
    for start in range(0, len(text), _PIECE_CHARACTERS):
        yield text[start : start + _PIECE_CHARACTERS]
