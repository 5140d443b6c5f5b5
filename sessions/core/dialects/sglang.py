"""SGLang's dialect: chat with `input_ids`, the sampled ids in `meta_info`.

Ids and log probabilities are the entries of `choices[0].meta_info.output_token_logprobs`. Where a
server between us drops `meta_info` but newer fields are there (`response_token_ids` since 0.5.18,
`sglext.output_ids` after it), these with `logprobs.content` do as well; where both are there they
must agree. Replay data is base64 of bare int32 rows.

When a tool call was parsed, SGLang overwrites the finish reason in both places, so the token that
ended the turn is only in the ids.

Spec: docs/engines.md#sglang
"""

from __future__ import annotations

from array import array
from collections.abc import Sequence
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
    seconds_of,
    token_ids_of,
    word_of,
)
from sessions.core.engine_replies.prompt_echo import PROMPT_IDS
from sessions.core.engine_replies.sampled import Sampled
from sessions.core.texts.json_text import Json, JsonObject
from sessions.errors.engine import EngineReplyUnusableError

_ASKS_PROMPT_IDS: Final = "return_prompt_token_ids"
_FORCED: Final[JsonObject] = {
    "logprobs": True,
    "return_meta_info": True,
    "no_stop_trim": False,
    _ASKS_PROMPT_IDS: True,
}
# Every field of replay data whose width the engine tells itself.
_TOLD_LAYERS: Final = ("indexer_topk",)


class SGLangDialect:
    """See the module docstring; implements `EngineDialect`."""

    name: Final = "sglang"

    def __init__(self, *, is_echo_required: bool = True) -> None:
        """Remember a rule.

        Args:
            is_echo_required: A reply without the prompt's ids is refused.
        """
        self._is_echo_required = is_echo_required

    def put(self, body: JsonObject, prompt: Json, replay: ReplayWish) -> None:
        """See `EngineDialect`."""
        body |= _FORCED
        if replay.is_wanted:
            body["return_routed_experts"] = True
            if replay.start_row:
                body["routed_experts_start_len"] = replay.start_row
            else:
                body.pop("routed_experts_start_len", None)
        body["input_ids"] = prompt

    def wants_prompt_ids(self, body: JsonObject) -> bool:
        """See `EngineDialect`."""
        return body.get(_ASKS_PROMPT_IDS) is True

    def read(self, reply: Json, text: bytes, prompt_ids: array[int]) -> Sampled:
        """See `EngineDialect`."""
        choice = first_choice_of(reply, text)
        message = message_of(choice)
        meta, usage = object_of(choice.get("meta_info")), object_of(reply.get("usage"))
        extension = object_of(reply.get("sglext"))
        token_ids, log_probs = _sampled_in(choice, meta, extension)
        check_sampled_counts(
            len(token_ids), (meta.get("completion_tokens"), usage.get("completion_tokens"))
        )
        check_prompt(
            prompt_ids,
            (
                (f"choices[0].{PROMPT_IDS}", choice.get(PROMPT_IDS)),
                (PROMPT_IDS, reply.get(PROMPT_IDS)),
                ("sglext.input_ids", extension.get("input_ids")),
            ),
            (meta.get("prompt_tokens"), usage.get("prompt_tokens")),
            is_required=self._is_echo_required,
        )
        told, in_meta = choice.get("finish_reason"), meta.get("finish_reason")
        return Sampled(
            reply=reply,
            message=message,
            token_ids=token_ids,
            log_probs=log_probs,
            # It is said twice: as a word, and in meta_info as an object with a type.
            finish_reason=word_of(
                told, object_of(told).get("type"), in_meta, object_of(in_meta).get("type")
            ),
            weight_version=word_of(
                meta.get("weight_version"), object_of(reply.get("metadata")).get("weight_version")
            ),
            cached_count=count_of(
                meta.get("cached_tokens"),
                object_of(usage.get("prompt_tokens_details")).get("cached_tokens"),
            ),
            prompt_count=count_of(meta.get("prompt_tokens"), usage.get("prompt_tokens")),
            latency_s=seconds_of(meta.get("e2e_latency")),
            row_layers={
                name: layers
                for name in _TOLD_LAYERS
                if (layers := count_of(meta.get(f"{name}_num_layers")))
            },
        )


def _sampled_in(
    choice: JsonObject, meta: JsonObject, extension: JsonObject
) -> tuple[array[int], array[float]]:
    """The sampled ids and their log probabilities, from all places that have them."""
    listed = [
        (place, token_ids_of(ids))
        for place, ids in (
            ("choices[0].response_token_ids", choice.get("response_token_ids")),
            ("sglext.output_ids", _own_ids(extension.get("output_ids"))),
        )
        if isinstance(ids, list)
    ]
    entries = meta.get("output_token_logprobs")
    if isinstance(entries, list):
        ids = token_ids_of(_column_of(entries, 1))
        log_probs = array("d", map(log_prob_of, _column_of(entries, 0)))
    elif listed:
        ids = listed[0][1]
        log_probs = array("d", _told_log_probs(choice))
        check_log_probs(len(log_probs), len(ids))
    else:
        raise EngineReplyUnusableError(
            "the engine's reply has no choices[0].meta_info.output_token_logprobs: the engine, or a"
            " router on the way to it, does not know logprobs with return_meta_info"
        )
    for place, others in listed:
        if others != ids:
            raise EngineReplyUnusableError(
                f"the engine contradicts itself: {len(ids)} sampled ids, and other ones in {place}"
            )
    return ids, log_probs


def _own_ids(found: Json) -> Json:
    """The first choice's ids: `sglext` has a list for one choice, or one list per choice."""
    if isinstance(found, list) and found and isinstance(found[0], list):
        return found[0]
    return found


def _column_of(entries: Sequence[Json], index: int) -> list[Json]:
    try:
        return [entry[index] for entry in entries]
    except (TypeError, IndexError, KeyError) as error:
        raise EngineReplyUnusableError(
            "an entry of the engine's output_token_logprobs is not [logprob, token id, text]"
        ) from error


def _told_log_probs(choice: JsonObject) -> list[float]:
    entries = object_of(choice.get("logprobs")).get("content")
    found = entries if isinstance(entries, list) else []
    return [log_prob_of(object_of(entry).get("logprob")) for entry in found]
