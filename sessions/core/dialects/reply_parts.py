"""Parts that the replies of all engines have, checked: choice, message, ids, counts, the echo.

Every function either gives a value that a turn can be made of or refuses the reply in words that
name the place. An engine that ignored our prompt, or a router on the way that dropped the token
fields, is found here and not by the trainer.

Must not know any one engine.

Spec: docs/sessions.md#engine-reply
"""

from __future__ import annotations

import math
from array import array
from collections.abc import Iterable, Sequence
from typing import Final

from sessions.core.engine_replies.prompt_echo import SENT_IDS
from sessions.core.engine_replies.sampled import shown_text
from sessions.core.texts.json_text import Json, JsonObject
from sessions.errors.engine import EngineReplyUnusableError

_MAX_TOKEN_ID: Final = (1 << 32) - 1
# Counts and times larger than this are no counts or times (and do not fit a float exactly).
_MAX_COUNT: Final = 1 << 53


def first_choice_of(reply: Json, text: bytes) -> JsonObject:
    """The first choice; others are ignored.

    Raises:
        EngineReplyUnusableError: There is none.
    """
    choices = reply.get("choices") if isinstance(reply, dict) else None
    if not isinstance(choices, list) or not choices or not isinstance(choices[0], dict):
        raise EngineReplyUnusableError(f"the engine's reply has no choices: {shown_text(text)}")
    first: JsonObject = choices[0]
    return first


def message_of(choice: JsonObject) -> JsonObject:
    """The choice's message: what the next turn must be able to render, and what clients read.

    Engines differ in the name of the reasoning. `reasoning_content` is there afterwards whenever
    there is reasoning; a `reasoning` stays beside it, and null content stays null.

    Raises:
        EngineReplyUnusableError: No message, or one that is no text and calls of functions.
    """
    message = choice.get("message")
    if not isinstance(message, dict):
        raise EngineReplyUnusableError("the engine's reply has no choices[0].message")
    place = "the engine's choices[0].message"
    if message.setdefault("role", "assistant") != "assistant":
        raise EngineReplyUnusableError(f"{place}.role is not assistant")
    for field in ("content", "reasoning_content", "reasoning"):
        if not isinstance(message.get(field), str | None):
            raise EngineReplyUnusableError(f"{place}.{field} is not text")
    calls = message.get("tool_calls")
    if calls is not None and not (isinstance(calls, list) and all(map(_is_tool_call, calls))):
        raise EngineReplyUnusableError(f"{place}.tool_calls is no list of function calls")
    message.setdefault("content", None)
    if message.get("reasoning") and not message.get("reasoning_content"):
        message["reasoning_content"] = message["reasoning"]
    return message


def token_ids_of(found: Sequence[Json]) -> array[int]:
    """Sampled ids.

    Raises:
        EngineReplyUnusableError: One is no plain number from 0 up.
    """
    for token_id in found:
        if type(token_id) is not int or not 0 <= token_id <= _MAX_TOKEN_ID:
            raise EngineReplyUnusableError(f"the engine sampled {token_id!r}, which is no token id")
    return array("I", found)


def log_prob_of(value: Json) -> float:
    """A log probability; NaN for what is no finite number."""
    return value if type(value) in (float, int) and abs(value) < _MAX_COUNT else math.nan


def check_sampled_counts(sampled: int, told: Iterable[Json]) -> None:
    """Compare the number of sampled ids with what the engine counted.

    Args:
        sampled: Ids in the reply.
        told: Counts of completion tokens in the reply; None where one is missing.

    Raises:
        EngineReplyUnusableError: One differs, or there is none.
    """
    counts = [count for count in told if count is not None]
    if not counts:
        raise EngineReplyUnusableError("the engine's reply does not say completion_tokens")
    for count in counts:
        if count != sampled:
            raise EngineReplyUnusableError(
                f"the engine says {count!r} completion tokens and returned the ids of {sampled}"
            )


def check_log_probs(log_probs: int, sampled: int) -> None:
    """Compare the number of log probabilities with that of the sampled ids.

    Raises:
        EngineReplyUnusableError: They differ.
    """
    if log_probs != sampled:
        raise EngineReplyUnusableError(
            f"the engine returned {log_probs} log probabilities and the ids of {sampled} tokens"
        )


def check_prompt(
    sent: array[int],
    echoes: Sequence[tuple[str, Json]],
    told_counts: Iterable[Json],
    *,
    is_required: bool,
) -> None:
    """Compare the prompt that the engine used with the one that was sent.

    Args:
        sent: The ids that were sent.
        echoes: (place in the reply, ids as found there); None where there are none.
        told_counts: Counts of prompt tokens in the reply; they decide only if there is no echo.
        is_required: Without an echo the reply is refused.

    Raises:
        EngineReplyUnusableError: They differ, or the echo is missing and required.
    """
    found = [(place, ids) for place, ids in echoes if ids is not None]
    for place, ids in found:
        if ids is not SENT_IDS and ids != sent.tolist():
            length = f"{len(ids)} ids" if isinstance(ids, list) else "no list"
            raise EngineReplyUnusableError(
                f"the engine did not use the prompt that was sent: {len(sent)} token ids were"
                f" sent, {place} has {length}"
            )
    if found:
        return
    if is_required:
        places = " or ".join(place for place, _ in echoes)
        raise EngineReplyUnusableError(
            f"the engine's reply has no {places}, so nobody knows whether it used the prompt that"
            " was sent: the engine or a router on the way to it is too old, or speaks another"
            " dialect (SESSIONS_ENGINE_DIALECT); SESSIONS_PROMPT_ECHO=optional takes its word"
        )
    for count in filter(None, map(count_of, told_counts)):
        if count != len(sent):
            raise EngineReplyUnusableError(
                f"the engine did not use the prompt that was sent: {len(sent)} token ids were"
                f" sent, it counts {count} prompt tokens"
            )


def object_of(value: Json) -> JsonObject:
    """The value if it is an object, else an empty one."""
    return value if isinstance(value, dict) else {}


def word_of(*values: Json) -> str:
    """The first value that is a text and not empty, else ""."""
    return next((value for value in values if isinstance(value, str) and value), "")


def count_of(*values: Json) -> int:
    """The first value that is a plain count, else 0."""
    return next((v for v in values if type(v) is int and 0 <= v < _MAX_COUNT), 0)


def seconds_of(value: Json) -> float | None:
    """The value if it is a time, else None."""
    is_time = type(value) in (float, int) and 0 <= value < _MAX_COUNT
    return float(value) if is_time else None


def _is_tool_call(call: Json) -> bool:
    function = call.get("function") if isinstance(call, dict) else None
    return isinstance(function, dict) and isinstance(function.get("name"), str)
