"""The document of a chat reply in SGLang's form, and its bytes with the experts left out.

A document is a plain dict in which the experts stand as `Blob` objects. `render` writes it once
with placeholders, cuts the text at them, and gives a `Body`: texts and blobs in order, with a
length that is known before a blob is made.

Spec: docs/sim.md#replies
"""

from __future__ import annotations

import json
import secrets
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import orjson

from sessions.sim.body import ChatBody
from sessions.sim.experts import PIECE_BYTES, Blob, Piece
from sessions.sim.sampler import Sample, Sampler


@dataclass(frozen=True, slots=True, kw_only=True)
class Origin:
    """What a reply says about where it comes from.

    Attributes:
        reply_id: Of the reply and its choices.
        model: As asked for, or the engine's.
        weight_version: Of the engine.
        created: Unix time in seconds.
        latency_s: Since the request arrived.
        cached_count: Prompt tokens found in the prefix cache.
        has_both_copies: Whether `sglext` repeats experts that stand in `meta_info`.
    """

    reply_id: str
    model: str
    weight_version: str
    created: int
    latency_s: float
    cached_count: int
    has_both_copies: bool = False


class Body:
    """Bytes of a reply: texts and blobs in order."""

    __slots__ = ("_parts",)

    def __init__(self, parts: Sequence[bytes | Blob]) -> None:
        self._parts = parts

    def __len__(self) -> int:
        """Bytes in all."""
        return sum(map(len, self._parts))

    def pieces(self) -> Iterator[Piece]:
        """All bytes in order, in pieces of at most about `PIECE_BYTES` each."""
        for part in self._parts:
            if isinstance(part, Blob):
                yield from part.pieces()
                continue
            view = memoryview(part)
            for at in range(0, len(part), PIECE_BYTES):
                yield view[at : at + PIECE_BYTES]


def document_of(
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
        blobs: The experts of each choice, or none if not asked for.
        origin: Names and times.
        sampler: Knows the texts of tokens.

    Returns:
        A JSON document with `Blob` objects in it, keys in SGLang's order.
    """
    choices = []
    for index, sample in enumerate(samples):
        choice: dict[str, Any] = {
            "index": index,
            "message": message_of(sample),
            "logprobs": logprobs_of(body, sample, sampler) if body.logprobs else None,
            "finish_reason": sample.finish.reason,
            "matched_stop": sample.finish.matched,
        }
        if body.return_prompt_token_ids:
            choice["prompt_token_ids"] = prompt
        if body.return_token_ids:
            choice["response_token_ids"] = sample.ids
        if body.return_meta_info:
            meta_info = _meta_info_of(body, len(prompt), sample, origin, sampler)
            if blobs:
                meta_info["routed_experts"] = blobs[index]
            choice["meta_info"] = meta_info
        choices.append(choice)
    document: dict[str, Any] = {
        "id": origin.reply_id,
        "object": "chat.completion",
        "created": origin.created,
        "model": origin.model,
        "choices": choices,
        "usage": usage_of(prompt, samples),
        "metadata": {"weight_version": origin.weight_version},
    }
    if blobs and (origin.has_both_copies or not body.return_meta_info):
        document["sglext"] = {"routed_experts": blobs[0]}
    return document


def render(document: dict[str, Any], *, loosely: bool = False) -> Body:
    """Write a document.

    Args:
        document: May hold `Blob` objects.
        loosely: Write NaN as NaN and lone surrogates as escapes, as Python's own writer does;
            otherwise NaN becomes null and a lone surrogate is an error of the caller.

    Returns:
        Its bytes, compact JSON.
    """
    blobs: list[Blob] = []
    mark = secrets.token_hex(16)

    def placeholder(value: object) -> str:
        if not isinstance(value, Blob):
            raise TypeError(f"no JSON: {type(value).__name__}")
        blobs.append(value)
        return mark

    if loosely:
        text = json.dumps(document, default=placeholder, separators=(",", ":")).encode()
    else:
        text = orjson.dumps(document, default=placeholder)
    texts = text.split(mark.encode())
    parts: list[bytes | Blob] = [texts[0]]
    for blob, following in zip(blobs, texts[1:], strict=True):
        parts += [blob, following]
    return Body(parts)


def message_of(sample: Sample) -> dict[str, Any]:
    """The message of one choice; `content` is never null, `tool_calls` is null without calls."""
    calls = [
        {
            "id": f"call_{sample.mark}{number:08x}",
            "index": number,
            "type": "function",
            "function": {"name": call.name, "arguments": call.arguments},
        }
        for number, call in enumerate(sample.said.calls)
    ]
    return {
        "role": "assistant",
        "content": sample.said.content,
        "reasoning_content": sample.said.reasoning or None,
        "tool_calls": calls or None,
    }


def usage_of(prompt: Sequence[int], samples: Sequence[Sample]) -> dict[str, Any]:
    """The usage of all choices together."""
    completion = sum(len(sample.ids) for sample in samples)
    return {
        "prompt_tokens": len(prompt),
        "total_tokens": len(prompt) + completion,
        "completion_tokens": completion,
        "prompt_tokens_details": None,
    }


def logprobs_of(body: ChatBody, sample: Sample, sampler: Sampler) -> dict[str, Any]:
    """The log-probabilities of one choice in OpenAI's form."""
    content = []
    for token_id, logprob in zip(sample.ids, sample.logprobs, strict=True):
        text = sampler.token_text(token_id)
        entry = {"token": text, "bytes": list(text.encode()), "logprob": logprob}
        # Alternatives are not simulated: the sampled token is the only one listed.
        entry["top_logprobs"] = [dict(entry)] if body.top_logprobs else []
        content.append(entry)
    return {"content": content}


def _meta_info_of(
    body: ChatBody, prompt_count: int, sample: Sample, origin: Origin, sampler: Sampler
) -> dict[str, Any]:
    meta_info: dict[str, Any] = {
        "id": origin.reply_id,
        "finish_reason": _finish_object(sample),
        "prompt_tokens": prompt_count,
        "weight_version": origin.weight_version,
        "num_retractions": 0,
        "e2e_latency": origin.latency_s,
    }
    if body.logprobs:
        texts = map(sampler.token_text, sample.ids)
        entries = zip(sample.logprobs, sample.ids, texts, strict=True)
        meta_info["output_token_logprobs"] = list(map(list, entries))
    meta_info["completion_tokens"] = len(sample.ids)
    meta_info["cached_tokens"] = origin.cached_count
    return meta_info


def _finish_object(sample: Sample) -> dict[str, Any]:
    reason = sample.finish.reason
    if reason == "length":
        return {"type": reason, "length": len(sample.ids)}
    if reason == "abort":
        return {"type": reason, "message": "aborted", "status_code": None}
    return {"type": reason, "matched": sample.finish.matched}
