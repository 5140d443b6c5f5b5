"""The document of a chat reply in vLLM's form, with the keys of 0.30 in their order.

Must not know how a reply was sampled.

Spec: docs/sim.md#vllm
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from sessions.sim.body import ChatBody
from sessions.sim.experts import Blob
from sessions.sim.reply import Origin, logprobs_of, usage_of
from sessions.sim.sampler import Sample, Sampler

VERSION: Final = "0.30.0"
_MARK_DIGITS: Final = 8


def vllm_document_of(
    body: ChatBody,
    prompt: Sequence[int],
    samples: Sequence[Sample],
    *,
    blobs: Sequence[Blob],
    origin: Origin,
    sampler: Sampler,
) -> dict[str, Any]:
    """Make the document.

    Args:
        body: The request, whose switches choose what is in the reply.
        prompt: Its ids.
        samples: One per choice.
        blobs: The experts of each choice, or none.
        origin: Names and times.
        sampler: Knows the texts of tokens.

    Returns:
        A JSON document with `Blob` objects in it.
    """
    choices = [
        {
            "index": index,
            "message": vllm_message_of(sample),
            "logprobs": logprobs_of(body, sample, sampler) if body.logprobs else None,
            "finish_reason": sample.finish.reason,
            "stop_reason": _stop_reason(sample),
            "token_ids": sample.ids if body.return_token_ids else None,
            "routed_experts": blobs[index] if blobs else None,
        }
        for index, sample in enumerate(samples)
    ]
    return {
        "id": f"chatcmpl-{origin.reply_id[:16]}",
        "object": "chat.completion",
        "created": origin.created,
        "model": origin.model,
        "choices": choices,
        "service_tier": None,
        "system_fingerprint": f"vllm-{VERSION}-sim",
        "usage": {**usage_of(prompt, samples), "completion_tokens_details": None},
        "prompt_logprobs": None,
        "prompt_token_ids": list(prompt) if body.return_prompt_token_ids else None,
        "prompt_text": None,
        "kv_transfer_params": None,
        "ec_transfer_params": None,
        "metrics": None,
    }


def vllm_message_of(sample: Sample) -> dict[str, Any]:
    """The message of one choice: empty texts are null, `tool_calls` is there only with calls."""
    calls = [
        {
            "id": f"chatcmpl-tool-{sample.mark[:_MARK_DIGITS]}{number:08x}",
            "type": "function",
            "function": {"name": call.name, "arguments": call.arguments},
        }
        for number, call in enumerate(sample.said.calls)
    ]
    return {
        "role": "assistant",
        "content": sample.said.content or None,
        "refusal": None,
        "annotations": None,
        "audio": None,
        "function_call": None,
        **({"tool_calls": calls} if calls else {}),
        "reasoning": sample.said.reasoning or None,
    }


def _stop_reason(sample: Sample) -> str | None:
    """The stop string; the model's own stop token is not told."""
    matched = sample.finish.matched
    return matched if isinstance(matched, str) else None
