"""What a project can plug in where samples are made: which leaves, and the last touch.

A picker chooses the leaves that become samples, and their order. A post-processor gets the samples
that were made of them as drafts and may change loss masks, metadata and rewards, or leave samples
out. Both are plain functions; they run in a thread, one after the other, and see copies of what
the client sent along.

Must not know how samples are made or sent.

Spec: docs/samples.md#hooks
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import TypeAlias

from sessions.core.samples.session_tree import Leaf, SessionTree
from sessions.core.texts.json_text import Json, JsonObject


@dataclass(frozen=True, slots=True, kw_only=True)
class Completion:
    """What one turn sampled, within a draft.

    Attributes:
        node_id: The turn.
        start: Index in the loss mask of its first sampled token.
        stop: The one after the last.
    """

    node_id: str
    start: int
    stop: int


@dataclass(slots=True, kw_only=True, eq=False)
class SampleDraft:
    """One sample before it is sent.

    Attributes:
        leaf: What it was made of.
        token_ids: Prompt and response; cannot be changed.
        prompt_count: How many of them are the prompt.
        response: The response as text, special tokens kept.
        status: `completed`, `truncated`, `aborted` or `pending`.
        completions: What was sampled, in order; the rest of the response was not.
        loss_mask: One byte for each token of the response, 1 to train on it. May be changed; only
            sampled tokens may have a 1.
        metadata: What the sample tells besides; JSON. May be changed.
        reward: JSON. May be assigned.
    """

    leaf: Leaf
    token_ids: memoryview
    prompt_count: int
    response: str
    status: str
    completions: tuple[Completion, ...]
    loss_mask: bytearray
    metadata: JsonObject = field(default_factory=dict)
    reward: Json = None


Picker: TypeAlias = Callable[[SessionTree, JsonObject], Sequence[Leaf]]
PostProcessor: TypeAlias = Callable[[Sequence[SampleDraft], JsonObject], Sequence[SampleDraft]]


@dataclass(frozen=True, slots=True, kw_only=True)
class SampleHooks:
    """Both hooks.

    Attributes:
        picker: Gets the tree and the client's metadata; gives leaves of that tree, each once, in
            the order of the samples.
        post_processor: Gets the drafts in that order and the client's metadata; gives those of
            them, each once, that are sent.
    """

    picker: Picker
    post_processor: PostProcessor
