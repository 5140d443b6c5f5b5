"""The blob as trainers know it: names, types, shapes, and the document."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import safetensors.numpy

from sessions.core.samples.assembly import EmptyReason, Sample, SampleRules, assemble
from sessions.core.samples.layout import parts_of
from sessions.core.samples.tensors import tensors_of
from tests.support.samples import blob_of, decode, finished, rows_for, turn_of, whole_of


def read(made: Sample | EmptyReason, metadata: dict[str, Any]) -> tuple[dict[str, Any], Any]:
    samples = [finished(made)] if isinstance(made, Sample) else []
    reason = None if isinstance(made, Sample) else made
    found = safetensors.numpy.load(whole_of(parts_of(tensors_of(samples, reason, metadata))))
    meta = found.pop("_samples_meta")
    assert meta.dtype == np.uint8
    assert meta.ndim == 1
    text = meta.tobytes()
    document = json.loads(text)
    assert text.decode() == json.dumps(document, separators=(",", ":"), ensure_ascii=False)
    return found, document


def sample_of(**changes: Any) -> Sample:  # noqa: ANN401 - JSON
    turn = turn_of(
        [1, 2], [10, 11], weight_version="v", cached_tokens=1, prompt_tokens=2, **changes
    )
    found = assemble([turn], SampleRules(max_trim_count=0), decode)
    assert isinstance(found, Sample)
    return found


def test_the_reference_layout_is_kept():
    rows = blob_of(rows_for(3, 2, 2).tobytes())
    sample = sample_of(
        replay=[("routed_experts", rows), ("indexer_topk", rows)],
        layers=2,
        indexer_topk_num_layers=4,
    )
    found, document = read(sample, {"accumulated_token_ids": [1, 2, 10, 11], "max_trim_tokens": 0})
    assert {name: (str(a.dtype), a.shape) for name, a in found.items()} == {
        "tokens.0": ("int64", (4,)),
        "loss_mask.0": ("uint8", (2,)),
        "rollout_log_probs.0": ("float64", (2,)),
        "rollout_routed_experts.0": ("int32", (3, 2, 2)),
        "rollout_indexer_topk.0": ("int32", (3, 4, 1)),
    }
    assert document == {
        "samples": [
            {
                "response": "<10><11>",
                "response_length": 2,
                "status": "completed",
                "weight_versions": ["v"],
                "prefix_cache_info": {"cached_tokens": 1, "total_prompt_tokens": 2},
                "metadata": {
                    "lifecycle": {"t0": None, "t1": 2.0, "turn": 1, "req_ts": 1.0, "prev_t1": None}
                },
                "nulls": [],
            }
        ],
        "session_metadata": {"accumulated_token_ids": [1, 2, 10, 11], "max_trim_tokens": 0},
        "empty_reason": None,
    }


def test_what_is_not_there_is_named():
    found, document = read(sample_of(), {})
    assert sorted(found) == ["loss_mask.0", "rollout_log_probs.0", "tokens.0"]
    assert document["samples"][0]["nulls"] == ["rollout_routed_experts", "rollout_indexer_topk"]


def test_no_row_is_not_null():
    turn = turn_of([], [1], replay=[("routed_experts", blob_of(b""))])
    made = assemble([turn], SampleRules(max_trim_count=0), decode)
    found, document = read(made, {})
    assert found["rollout_routed_experts.0"].shape == (0, 0)
    assert document["samples"][0]["nulls"] == ["rollout_indexer_topk"]


def test_nothing_sampled_gives_tensors_of_no_elements():
    made = assemble([turn_of([1], [])], SampleRules(max_trim_count=0), decode)
    found, document = read(made, {})
    assert found["loss_mask.0"].shape == found["rollout_log_probs.0"].shape == (0,)
    assert document["samples"][0]["response_length"] == 0


def test_an_empty_reply_says_why():
    for reason in EmptyReason:
        found, document = read(reason, {"accumulated_token_ids": []})
        assert found == {}
        assert document == {
            "samples": [],
            "session_metadata": {"accumulated_token_ids": []},
            "empty_reason": reason.value,
        }


def test_text_of_every_kind_can_be_told():
    found, document = read(EmptyReason.NO_RECORDS, {"text": "\u2028 é 😀"})
    assert document["session_metadata"] == {"text": "\u2028 é 😀"}
    assert found == {}
