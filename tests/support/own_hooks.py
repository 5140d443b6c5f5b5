"""Hooks of a project for the samples of its sessions.

Spec: docs/samples.md#hooks
"""

from __future__ import annotations

from collections.abc import Sequence

from sessions.core.samples.hooks import SampleDraft
from sessions.core.samples.session_tree import Leaf, SessionTree
from sessions.core.texts.json_text import JsonObject


def oldest_first(tree: SessionTree, metadata: JsonObject) -> list[Leaf]:
    """Every leaf of as many turns as the client wants, the oldest first."""
    return [leaf for leaf in tree.leaves if len(leaf.path) >= metadata.get("least", 1)]


def reward_length(drafts: Sequence[SampleDraft], metadata: JsonObject) -> Sequence[SampleDraft]:
    """Nothing is trained on but the last completion; the reward is its length."""
    for draft in drafts:
        last = draft.completions[-1]
        draft.loss_mask[: last.start] = bytes(last.start)
        draft.reward = metadata["factor"] * (last.stop - last.start)
    return drafts
