"""What the engine sampled: its 200 reply, checked before anything is made of it.

A turn is recorded only when the reply says which tokens were sampled and every count agrees:
token ids, log probabilities, completion tokens, and the prompt's ids when the engine returns them.
An engine that ignored our prompt, or a router on the way that dropped the token fields, is found
here and not by the trainer.

Must not know sessions or HTTP.

Spec: docs/sessions.md#engine-reply
"""

from __future__ import annotations

from array import array
from dataclasses import dataclass
from typing import Final

from sessions.core.json_text import Json, JsonObject
from sessions.core.prompt_echo import PROMPT_IDS, SENT_IDS
from sessions.core.replay_fields import blank_replay
from sessions.errors import EngineReplyUnusableError

_SHOWN_CHARACTERS: Final = 300
_MAX_TOKEN_ID: Final = (1 << 32) - 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Sampled:
    """One usable reply.

    Attributes:
        reply: The whole reply as parsed, numbers that are not finite as None, `SENT_IDS` for the
            ids of the prompt.
        message: The assistant message, shared with the reply.
        token_ids: The sampled ids, the stop token included.
    """

    reply: JsonObject
    message: JsonObject
    token_ids: array[int]


def sampled_in(reply: Json, text: bytes, prompt_ids: array[int]) -> Sampled:
    """Check a 200 reply of the engine's chat endpoint.

    Args:
        reply: The parsed body; `SENT_IDS` stands for the very ids that were sent.
        text: The body or its beginning, for messages.
        prompt_ids: The token ids that were sent.

    Returns:
        What was sampled. Null or missing content and tool calls are fine.

    Raises:
        EngineReplyUnusableError: No turn can be made of it; the message says why.
    """
    choice = _first_choice_of(reply, text)
    message = choice.get("message")
    if not isinstance(message, dict):
        raise EngineReplyUnusableError("the engine's reply has no choices[0].message")
    _check_message(message)
    token_ids = _token_ids_of(choice)
    _check_completion_tokens(reply, choice, len(token_ids))
    for where, found in (
        (f"choices[0].{PROMPT_IDS}", choice.get(PROMPT_IDS)),
        (PROMPT_IDS, reply.get(PROMPT_IDS)),
    ):
        _check_prompt_ids(where, found, prompt_ids)
    return Sampled(reply=reply, message=message, token_ids=token_ids)


def shown_text(text: bytes) -> str:
    """The beginning of a body for a message, without replay."""
    shown = blank_replay(text[: 4 * _SHOWN_CHARACTERS]).decode(errors="replace")
    return shown if len(shown) <= _SHOWN_CHARACTERS else shown[:_SHOWN_CHARACTERS] + "..."


def _first_choice_of(reply: Json, text: bytes) -> JsonObject:
    choices = reply.get("choices") if isinstance(reply, dict) else None
    if not isinstance(choices, list) or not choices or not isinstance(choices[0], dict):
        raise EngineReplyUnusableError(f"the engine's reply has no choices: {shown_text(text)}")
    first: JsonObject = choices[0]
    return first


def _check_message(message: JsonObject) -> None:
    """What the next turn must be able to render: text, and calls that name a function."""
    place = "the engine's choices[0].message"
    if message.setdefault("role", "assistant") != "assistant":
        raise EngineReplyUnusableError(f"{place}.role is not assistant")
    for field in ("content", "reasoning_content", "reasoning"):
        if not isinstance(message.get(field), str | None):
            raise EngineReplyUnusableError(f"{place}.{field} is not text")
    calls = message.get("tool_calls")
    if calls is not None and not (isinstance(calls, list) and all(map(_is_tool_call, calls))):
        raise EngineReplyUnusableError(f"{place}.tool_calls is no list of function calls")


def _is_tool_call(call: Json) -> bool:
    function = call.get("function") if isinstance(call, dict) else None
    return isinstance(function, dict) and isinstance(function.get("name"), str)


def _token_ids_of(choice: JsonObject) -> array[int]:
    meta = choice.get("meta_info")
    entries = meta.get("output_token_logprobs") if isinstance(meta, dict) else None
    if not isinstance(entries, list):
        raise EngineReplyUnusableError(
            "the engine's reply has no choices[0].meta_info.output_token_logprobs: the engine, or a"
            " router on the way to it, does not know logprobs with return_meta_info"
        )
    try:
        ids = [entry[1] for entry in entries]
    except (TypeError, IndexError, KeyError) as error:
        raise EngineReplyUnusableError(
            "an entry of the engine's output_token_logprobs is not [logprob, token id, text]"
        ) from error
    for token_id in ids:
        if type(token_id) is not int or not 0 <= token_id <= _MAX_TOKEN_ID:
            raise EngineReplyUnusableError(f"the engine sampled {token_id!r}, which is no token id")
    return array("I", ids)


def _check_completion_tokens(reply: JsonObject, choice: JsonObject, sampled: int) -> None:
    usage = reply.get("usage")
    told = [choice["meta_info"].get("completion_tokens")]
    if isinstance(usage, dict):
        told.append(usage.get("completion_tokens"))
    counts = [count for count in told if count is not None]
    if not counts:
        raise EngineReplyUnusableError("the engine's reply does not say completion_tokens")
    for count in counts:
        if count != sampled:
            raise EngineReplyUnusableError(
                f"the engine says {count!r} completion tokens and returned the ids of {sampled}"
            )


def _check_prompt_ids(where: str, found: Json, sent: array[int]) -> None:
    if found is None or found is SENT_IDS or found == sent.tolist():
        return
    length = f"{len(found)} ids" if isinstance(found, list) else "no list"
    raise EngineReplyUnusableError(
        f"the engine did not use the prompt that was sent: {len(sent)} token ids were sent,"
        f" {where} has {length}"
    )
