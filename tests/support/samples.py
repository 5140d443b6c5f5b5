"""Turns of a session without a session, and the samples that a slow, plain program makes of them.

Spec: docs/architecture.md#tests
"""

from __future__ import annotations

import base64
import io
from array import array
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
import safetensors.numpy

from sessions.core.dialects.sglang import SGLangDialect
from sessions.core.engine_replies.sampled import Sampled
from sessions.core.engine_replies.turn_facts import facts_of
from sessions.core.histories.checkpoint import Checkpoint
from sessions.core.histories.node import Node
from sessions.core.records.record import Record
from sessions.core.samples.assembly import Sample, TurnSample
from sessions.core.samples.finished_samples import FinishedSample, loss_mask_of
from sessions.core.samples.layout import parts_of
from sessions.core.samples.tensors import META, tensors_of
from sessions.core.texts.shared_ids import SharedIds
from sessions.replay.blobs import ReplayBlob
from sessions.replay.splice import Part, SplicedText
from sessions.replay.taken import InlineBlob


def npy_of(rows: np.ndarray) -> bytes:
    """An `.npy` file."""
    file = io.BytesIO()
    np.save(file, rows)
    return file.getvalue()


def blob_of(data: bytes) -> InlineBlob:
    """A replay blob in memory that encodes these bytes."""
    return InlineBlob(base64.b64encode(data))


def rows_for(count: int, layers: int, topk: int, *, start: int = 0) -> np.ndarray:
    """Rows that tell their place: int32 [count, layers, topk] of rows from `start` on."""
    per_row = layers * topk
    numbers = np.arange(start * per_row, (start + count) * per_row, dtype="<i4")
    return numbers.reshape(count, layers, topk)


def reply_of(
    sampled: Sequence[int],
    log_probs: Sequence[float | None],
    *,
    finish_reason: str | None = "stop",
    **meta: Any,  # noqa: ANN401 - JSON
) -> dict[str, Any]:
    """An engine's parsed reply, without replay fields."""
    entries = [[p, token, None] for p, token in zip(log_probs, sampled, strict=True)]
    return {
        "choices": [
            {
                "message": {"role": "assistant", "content": "x"},
                "finish_reason": finish_reason,
                "meta_info": {"output_token_logprobs": entries, **meta},
            }
        ]
    }


def sampled_of(reply: dict[str, Any], prompt: Sequence[int] = ()) -> Sampled:
    """The same as the dialect reads it; counts that the reply does not tell are filled in."""
    meta = reply["choices"][0]["meta_info"]
    meta.setdefault("completion_tokens", len(meta["output_token_logprobs"]))
    return SGLangDialect(is_echo_required=False).read(reply, b"", array("I", prompt))


def turn_of(
    prompt: Sequence[int],
    sampled: Sequence[int],
    *,
    replay: Iterable[tuple[str, ReplayBlob]] = (),
    starts: dict[str, int] | None = None,
    layers: int = 0,
    before: TurnSample | None = None,
    log_probs: Sequence[float | None] | None = None,
    requested_at: float = 1.0,
    committed_at: float = 2.0,
    **reply: Any,  # noqa: ANN401 - JSON
) -> TurnSample:
    """A recorded turn; the log probability of token t is -t unless told."""
    if log_probs is None:
        log_probs = [-float(token) for token in sampled]
    facts = facts_of(
        sampled_of(reply_of(sampled, log_probs, **reply), prompt),
        prompt_count=len(prompt),
        requested_at=requested_at,
        committed_at=committed_at,
        replay=list(replay),
        starts=starts or {},
        layers=layers,
        before=None if before is None else before.facts,
    )
    return TurnSample(ids=SharedIds(array("I", [*prompt, *sampled])), facts=facts)


def nodes_of(turns: Iterable[TurnSample]) -> list[Node]:
    """The turns as a session has them, one after the other."""
    nodes: list[Node] = []
    for seq, turn in enumerate(turns):
        nodes.append(node_of(turn, seq, nodes[-1] if nodes else None))
    return nodes


def node_of(turn: TurnSample, seq: int, parent: Node | None, text: str = "x") -> Node:
    """A turn as a session has it; it was asked `q` and said a text."""
    nothing = SplicedText(parts=())
    checkpoint = Checkpoint(
        ids=turn.ids,
        message_end=2,
        record=Record(facts={}, request=(), response=nothing, raw_response=nothing, status=200),
        facts=turn.facts,
        tools=None,
        template_kwargs={},
    )
    added = ({"role": "user", "content": "q"}, {"role": "assistant", "content": text})
    return Node(seq=seq, parent=parent, checkpoint=checkpoint, added=added)


def finished(sample: Sample) -> FinishedSample:
    """A sample that no hook has touched."""
    mask, told = bytes(loss_mask_of(sample)), {"lifecycle": sample.lifecycle}
    return FinishedSample(sample=sample, loss_mask=mask, metadata=told)


def decode(ids: Sequence[int]) -> str:
    """Every token is its number in angle brackets."""
    return "".join(f"<{token}>" for token in ids)


def whole_of(parts: Iterable[Part]) -> bytes:
    """Bytes of parts, read in pieces of an odd size."""
    whole = bytearray()
    for part in parts:
        if isinstance(part, bytes | memoryview):
            whole += part
            continue
        for start in range(0, part.size_bytes, 4099):
            whole += part.read(start, min(start + 4099, part.size_bytes))
    return bytes(whole)


def arrays_of(sample: Sample) -> dict[str, np.ndarray]:
    """What the tensors of a sample hold, read back by the safetensors library."""
    blob = whole_of(parts_of(tensors_of([finished(sample)], None, {})))
    return {
        name.removesuffix(".0"): array
        for name, array in safetensors.numpy.load(blob).items()
        if name != META
    }
