"""The last touch: samples become drafts, a hook works on them, and they are checked again.

Must not know how samples are picked or sent.

Spec: docs/samples.md#hooks
"""

from __future__ import annotations

import copy
from collections.abc import Sequence
from dataclasses import dataclass

from sessions.core.samples.assembly import Sample
from sessions.core.samples.hook_call import call_hook, chosen_of
from sessions.core.samples.hooks import Completion, PostProcessor, SampleDraft
from sessions.core.samples.picked_samples import PickedSample
from sessions.core.samples.samples_request import NESTING_LIMIT, is_shallow
from sessions.core.texts.json_text import Json, JsonObject, render_json
from sessions.errors.samples import SampleHookError


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class FinishedSample:
    """One sample as it is sent.

    Attributes:
        sample: Its tokens, log probabilities and replay rows.
        loss_mask: One byte for each token of the response, 1 to train on it.
        metadata: What it tells besides.
        reward: JSON; None if none was assigned.
        has_reward: Whether a reward is sent, even if it is None.
    """

    sample: Sample
    loss_mask: bytes
    metadata: JsonObject
    reward: Json = None
    has_reward: bool = False


def finished_samples_of(
    picked: Sequence[tuple[PickedSample, JsonObject]],
    post_processor: PostProcessor,
    metadata: JsonObject,
    *,
    has_reward: bool,
) -> list[FinishedSample]:
    """Finish samples. Calls foreign code and works long: for threads.

    Args:
        picked: The samples, each with what the server tells of it.
        post_processor: Works on the drafts.
        metadata: What the client sent along.
        has_reward: Whether a reward is sent that was not assigned.

    Returns:
        Those that the post-processor keeps, in its order.

    Raises:
        SampleHookError: It raised, or gave something else than drafts that it was given, each
            once, or made of them what no sample can be.
    """
    drafts = [_draft_of(each, told) for each, told in picked]
    given = copy.deepcopy(metadata)
    kept = call_hook("post-processor", post_processor, list(drafts), given)
    samples = {id(draft): each.sample for draft, (each, _) in zip(drafts, picked, strict=True)}
    return [
        _finished(draft, samples[id(draft)], has_reward=has_reward)
        for draft in chosen_of("post-processor", kept, drafts)
    ]


def loss_mask_of(sample: Sample) -> bytearray:
    """1 for every sampled token of a response, 0 for the others."""
    start = sample.response_start
    mask = bytearray(sample.token_count - start)
    for span in sample.spans:
        mask[span.start - start : span.stop - start] = b"\x01" * (span.stop - span.start)
    return mask


def _draft_of(picked: PickedSample, told: JsonObject) -> SampleDraft:
    sample, start = picked.sample, picked.sample.response_start
    # A sample may end before its leaf does, never before its path begins.
    spans = zip(picked.leaf.path, sample.spans, strict=False)
    return SampleDraft(
        leaf=picked.leaf,
        token_ids=memoryview(sample.token_ids)[: sample.token_count].toreadonly(),
        prompt_count=start,
        response=sample.response,
        status=sample.status.value,
        completions=tuple(
            Completion(node_id=turn.node_id, start=span.start - start, stop=span.stop - start)
            for turn, span in spans
        ),
        loss_mask=loss_mask_of(sample),
        metadata={"lifecycle": sample.lifecycle, **told},
    )


def _finished(draft: SampleDraft, sample: Sample, *, has_reward: bool) -> FinishedSample:
    fault = _fault_of(draft, sample)
    if fault:
        raise SampleHookError(f"the post-processor's sample of {draft.leaf.node_id} {fault}")
    return FinishedSample(
        sample=sample,
        loss_mask=bytes(draft.loss_mask),
        metadata=draft.metadata,
        reward=draft.reward,
        has_reward=has_reward or draft.reward is not None,
    )


def _fault_of(draft: SampleDraft, sample: Sample) -> str:
    """What no sample can be; empty if nothing is."""
    mask: object = draft.loss_mask
    sampled = loss_mask_of(sample)
    if not isinstance(mask, bytes | bytearray) or len(mask) != len(sampled):
        return f"has no loss mask of {len(sampled)} bytes"
    # An or with what was sampled adds nothing, unless something else is in it.
    if int.from_bytes(mask) | int.from_bytes(sampled) != int.from_bytes(sampled):
        return "trains on tokens that were not sampled"
    told: object = draft.metadata
    if not isinstance(told, dict):
        return "has metadata that are no object"
    if not is_shallow([told, draft.reward]):
        return f"has metadata or a reward nested by more than {NESTING_LIMIT} levels"
    try:
        render_json([told, draft.reward])
    except (TypeError, ValueError) as error:
        return f"has metadata or a reward that are no JSON ({error})"
    return ""
