"""Samples as tensors, and the document that tells the rest of them.

Names, types and members are those that trainers know from the reference server's samples.

Must not know how tensors are sent.

Spec: docs/samples.md#reply
"""

from __future__ import annotations

from array import array
from collections.abc import Sequence
from typing import Final

from sessions.core.samples.assembly import EmptyReason, Sample
from sessions.core.samples.finished_samples import FinishedSample
from sessions.core.samples.layout import TYPE_BYTES, Tensor, in_order
from sessions.core.samples.replay_rows import DecodedRows
from sessions.core.texts.json_text import JsonObject, render_json
from sessions.replay.scanner import REPLAY_FIELDS

META: Final = "_samples_meta"


def tensors_of(
    samples: Sequence[FinishedSample],
    empty_reason: EmptyReason | None,
    session_metadata: JsonObject,
) -> list[Tensor]:
    """Lay a reply out. All but replay rows is made: for threads.

    Args:
        samples: The samples.
        empty_reason: Why there is none; None if there are some.
        session_metadata: The session's metadata.

    Returns:
        The tensors in the order of the blob.
    """
    tensors = [t for index, sample in enumerate(samples) for t in _tensors_of_sample(sample, index)]
    # Sample by sample: one call for all would keep every other thread waiting.
    told = b",".join(render_json(_members_of(sample)) for sample in samples)
    rest = {
        "session_metadata": session_metadata,
        "empty_reason": None if empty_reason is None else empty_reason.value,
    }
    text = b'{"samples":[%b],%b' % (told, render_json(rest)[1:])
    meta = Tensor(name=META, type="U8", dimensions=(len(text),), parts=(text,))
    return in_order([*tensors, meta])


def _members_of(finished: FinishedSample) -> JsonObject:
    sample = finished.sample
    reward = {"reward": finished.reward} if finished.has_reward else {}
    return {
        "response": sample.response,
        "response_length": sample.token_count - sample.response_start,
        "status": sample.status.value,
        "weight_versions": sample.weight_versions,
        "prefix_cache_info": {
            "cached_tokens": sample.cached_count,
            "total_prompt_tokens": sample.prompt_count,
        },
        **reward,
        "metadata": finished.metadata,
        "nulls": [f"rollout_{field}" for field in REPLAY_FIELDS if field not in sample.replay],
    }


def _tensors_of_sample(finished: FinishedSample, index: int) -> list[Tensor]:
    sample = finished.sample
    response = (sample.token_count - sample.response_start,)
    return [
        Tensor(
            name=f"tokens.{index}",
            type="I64",
            dimensions=(sample.token_count,),
            parts=(_tokens(sample),),
        ),
        Tensor(
            name=f"loss_mask.{index}", type="U8", dimensions=response, parts=(finished.loss_mask,)
        ),
        Tensor(
            name=f"rollout_log_probs.{index}",
            type="F64",
            dimensions=response,
            parts=(_log_probs(sample),),
        ),
        *(
            Tensor(
                name=f"rollout_{field}.{index}",
                type="I32",
                dimensions=tensor.dimensions,
                parts=tuple(DecodedRows(patch) for patch in tensor.patches),
            )
            for field, tensor in sample.replay.items()
        ),
    ]


def _tokens(sample: Sample) -> memoryview:
    """Twice as wide: every second number is a half of zero, the first of a pair the lower one."""
    wide = memoryview(bytearray(sample.token_count * TYPE_BYTES["I64"]))
    if sample.token_count:
        ids = memoryview(sample.token_ids)[: sample.token_count]
        wide.cast("I")[::2] = ids
    return wide


def _log_probs(sample: Sample) -> bytes:
    start = sample.response_start
    found = array("d", bytes((sample.token_count - start) * TYPE_BYTES["F64"]))
    for span in sample.spans:
        size = span.stop - span.start
        found[span.start - start : span.stop - start] = span.log_probs[:size]
    return found.tobytes()
