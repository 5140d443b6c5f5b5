"""vLLM's dialect: chat with `kv_transfer_params.prompt_token_ids`, the sampled ids in the choice.

The ids take that way in from 0.28 on. Elsewhere vLLM ignores unknown fields, and older versions
(or 0.30 with an empty list) render the messages instead without a word: so the echo of the prompt
is what tells, and it comes with `return_token_ids`. Log probabilities are the entries of
`logprobs.content` by position, which name no id. Replay data is base64 of an `.npy` file in each
choice; it needs no wish but the server's flag `--enable-return-routed-experts`.

Must not know how the ids were made. The reasoning parser is set up from `chat_template_kwargs`,
not from the ids, so those that made them are sent along.

Spec: docs/engines.md#vllm
"""

from __future__ import annotations

from array import array
from typing import Final

from sessions.core.dialects.dialect import ReplayWish
from sessions.core.dialects.reply_parts import (
    check_log_probs,
    check_prompt,
    check_sampled_counts,
    count_of,
    first_choice_of,
    log_prob_of,
    message_of,
    object_of,
    token_ids_of,
    word_of,
)
from sessions.core.engine_replies.prompt_echo import PROMPT_IDS
from sessions.core.engine_replies.sampled import Sampled
from sessions.core.texts.json_text import Json, JsonObject
from sessions.errors.engine import EngineReplyUnusableError

_ASKS_IDS: Final = "return_token_ids"
_TRANSFER: Final = "kv_transfer_params"
_START_ROW: Final = "routed_experts_prompt_start"
# With these vLLM would ignore the ids, or cut them.
_AGAINST_IDS: Final = ("echo", "truncate_prompt_tokens")


class VLLMDialect:
    """See the module docstring; implements `EngineDialect`."""

    name: Final = "vllm"

    def __init__(self, *, is_echo_required: bool = True) -> None:
        """Remember a rule.

        Args:
            is_echo_required: A reply without the prompt's ids is refused.
        """
        self._is_echo_required = is_echo_required

    def put(self, body: JsonObject, prompt: Json, replay: ReplayWish) -> None:
        """See `EngineDialect`."""
        for field in _AGAINST_IDS:
            body.pop(field, None)
        body |= {"logprobs": True, _ASKS_IDS: True}
        if replay.is_wanted:
            if replay.start_row:
                body[_START_ROW] = replay.start_row
            else:
                body.pop(_START_ROW, None)
        body[_TRANSFER] = {**object_of(body.get(_TRANSFER)), PROMPT_IDS: prompt}

    def wants_prompt_ids(self, body: JsonObject) -> bool:
        """See `EngineDialect`."""
        return body.get(_ASKS_IDS) is True

    def read(self, reply: Json, text: bytes, prompt_ids: array[int]) -> Sampled:
        """See `EngineDialect`."""
        choice = first_choice_of(reply, text)
        message = message_of(choice)
        usage = object_of(reply.get("usage"))
        found = choice.get("token_ids")
        if not isinstance(found, list):
            raise EngineReplyUnusableError(
                "the engine's reply has no choices[0].token_ids: the engine, or a router on the"
                f" way to it, does not know {_ASKS_IDS}"
            )
        token_ids = token_ids_of(found)
        log_probs = _log_probs_in(choice)
        check_log_probs(len(log_probs), len(token_ids))
        check_sampled_counts(len(token_ids), (usage.get("completion_tokens"),))
        check_prompt(
            prompt_ids,
            (
                (PROMPT_IDS, reply.get(PROMPT_IDS)),
                (f"choices[0].{PROMPT_IDS}", choice.get(PROMPT_IDS)),
            ),
            (usage.get("prompt_tokens"),),
            is_required=self._is_echo_required,
        )
        cached = object_of(usage.get("prompt_tokens_details")).get("cached_tokens")
        return Sampled(
            reply=reply,
            message=message,
            token_ids=token_ids,
            log_probs=log_probs,
            finish_reason=word_of(choice.get("finish_reason")),
            cached_count=count_of(cached),
            prompt_count=count_of(usage.get("prompt_tokens")),
        )


def _log_probs_in(choice: JsonObject) -> array[float]:
    entries = object_of(choice.get("logprobs")).get("content")
    if entries is None:
        entries = []  # of a reply without tokens
    if not isinstance(entries, list) or not all(isinstance(entry, dict) for entry in entries):
        raise EngineReplyUnusableError(
            "the engine's reply has no list of objects at choices[0].logprobs.content"
        )
    return array("d", [log_prob_of(entry.get("logprob")) for entry in entries])
