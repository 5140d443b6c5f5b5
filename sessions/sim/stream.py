"""A reply as server-sent events, with the names of its engine.

Per choice: a role, reasoning, content, tool calls (name first, then arguments in fragments), the
finish; then the usage if asked for, and `[DONE]`. Fragments are cut by characters, which is how a
client sees a detokenised stream. Log-probabilities come with the chunk of the finish.

Must not know sampling or the connection.

Spec: docs/sim.md#streams
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

import orjson

DONE: Final = b"data: [DONE]\n\n"
_TOLD_AT_THE_END: Final = (
    "logprobs",
    "finish_reason",
    "matched_stop",
    "stop_reason",
    "token_ids",
)
_FRAGMENT_CHARS: Final = 16  # about four tokens


def events_of(document: dict[str, Any], *, with_usage: bool) -> Iterator[bytes]:
    """The events of a reply.

    Args:
        document: A whole reply as `reply.document_of` makes it, without blobs.
        with_usage: Whether a chunk with the usage comes last.

    Returns:
        Events in order, `[DONE]` included.
    """
    common = {key: document[key] for key in ("id", "created", "model")}
    common["object"] = "chat.completion.chunk"
    for choice in document["choices"]:
        told = [key for key in _TOLD_AT_THE_END if key in choice]
        blank = {"index": choice["index"], **dict.fromkeys(told)}
        for delta in _deltas_of(choice["message"]):
            yield _event(common, [{**blank, "delta": delta}])
        last = {key: choice[key] for key in told}
        yield _event(common, [{**blank, "delta": {}, **last}])
    if with_usage:
        yield _event(common, [], document["usage"])
    yield DONE


def _deltas_of(message: dict[str, Any]) -> Iterator[dict[str, Any]]:
    yield {"role": "assistant", "content": ""}
    for name in ("reasoning_content", "reasoning"):  # of SGLang, of vLLM
        for fragment in _fragments(message.get(name) or ""):
            yield {name: fragment}
    for fragment in _fragments(message["content"] or ""):
        yield {"content": fragment}
    for index, call in enumerate(message.get("tool_calls") or []):
        function = call["function"]
        opening = {**call, "index": index, "function": {**function, "arguments": ""}}
        yield {"tool_calls": [opening]}
        for fragment in _fragments(function["arguments"]):
            yield {"tool_calls": [{"index": index, "function": {"arguments": fragment}}]}


def _fragments(text: str) -> Iterator[str]:
    for at in range(0, len(text), _FRAGMENT_CHARS):
        yield text[at : at + _FRAGMENT_CHARS]


def _event(common: dict[str, Any], choices: list[dict[str, Any]], usage: object = None) -> bytes:
    return b"data: %b\n\n" % orjson.dumps({**common, "choices": choices, "usage": usage})
