"""Replies of every dialect that sampled the same, and a way to break one part of each.

Spec: docs/architecture.md#tests
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tests.support.engines import sampled_document


def vllm_document(
    ids: Sequence[int],
    *,
    content: str | None = "ok",
    finish_reason: str | None = "stop",
    prompt: Sequence[int] | None = None,
    **message: object,
) -> dict[str, Any]:
    """A 200 reply of vLLM's chat endpoint that sampled these ids, as 0.30 writes it."""
    prompt_count = len(prompt or [])
    return {
        "id": "chatcmpl-1",
        "object": "chat.completion",
        "created": 1700000000,
        "model": "m",
        "choices": [
            {
                "index": 0,
                "message": {"role": "assistant", "content": content, "refusal": None, **message},
                "logprobs": {
                    "content": [
                        {"token": "t", "logprob": -0.5, "bytes": [116], "top_logprobs": []}
                        for _ in ids
                    ]
                },
                "finish_reason": finish_reason,
                "stop_reason": None,
                "token_ids": list(ids),
                "routed_experts": None,
            }
        ],
        "usage": {
            "prompt_tokens": prompt_count,
            "total_tokens": prompt_count + len(ids),
            "completion_tokens": len(ids),
            "prompt_tokens_details": None,
        },
        "prompt_logprobs": None,
        "prompt_token_ids": None if prompt is None else list(prompt),
        "kv_transfer_params": None,
    }


def document_of(
    dialect: str,
    ids: Sequence[int],
    *,
    prompt: Sequence[int] | None = None,
    **parts: Any,  # noqa: ANN401 - JSON
) -> dict[str, Any]:
    """A reply in a dialect; parts are those of `sampled_document`."""
    if dialect == "vllm":
        return vllm_document(ids, prompt=prompt, **parts)
    document = sampled_document(ids, **parts)
    if prompt is not None:
        document["choices"][0]["prompt_token_ids"] = list(prompt)
        document["usage"]["prompt_tokens"] = len(prompt)
    return document
