"""The hooks that are used where no others are named.

The picker leaves out retries: a leaf with a later sibling was tried again. The post-processor sees
to it that each completion is trained on once, though several samples may contain it, and hands the
agent's metadata and reward to every sample.

Must not know how samples are made or sent.

Spec: docs/samples.md#hooks
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final

from sessions.core.named_code import load_function
from sessions.core.samples.hooks import SampleDraft, SampleHooks
from sessions.core.samples.session_tree import Leaf, SessionTree, Turn
from sessions.core.texts.json_text import JsonObject
from sessions.errors.unseen import SettingsError
from sessions.settings import variable_of

_REWARD: Final = "reward"


def drop_retries(tree: SessionTree, metadata: JsonObject) -> list[Leaf]:
    """Leaves without a later sibling, the deepest first, of equal depth the latest first.

    Siblings go on from the same turn. Two roots are siblings if they had the same prompt.
    """
    latest: dict[str | bytes, int] = {}
    for turn in tree.turns:
        latest[_family_of(turn)] = turn.seq
    kept = [leaf for leaf in tree.leaves if latest[_family_of(leaf.turn)] == leaf.turn.seq]
    return sorted(kept, key=lambda leaf: (-len(leaf.path), -leaf.turn.seq))


def train_once(drafts: Sequence[SampleDraft], metadata: JsonObject) -> Sequence[SampleDraft]:
    """Train on a completion in the first sample that has it, and merge what the agent sent along.

    The agent's metadata take the place of the server's where both have a name; its `reward` is
    that of every sample.
    """
    trained: set[str] = set()
    for draft in drafts:
        for completion in draft.completions:
            if completion.node_id in trained:
                nothing = bytes(completion.stop - completion.start)
                draft.loss_mask[completion.start : completion.stop] = nothing
            trained.add(completion.node_id)
        draft.metadata |= metadata
        draft.reward = metadata.get(_REWARD)
    return drafts


def load_hooks(picker: str, post_processor: str) -> SampleHooks:
    """The hooks that the settings name.

    Args:
        picker: `package.module:attribute`; empty for the default.
        post_processor: Likewise.

    Raises:
        SettingsError: There is none of that name.
    """
    return SampleHooks(
        picker=_load(picker, "sample_picker") or DEFAULT_HOOKS.picker,
        post_processor=_load(post_processor, "sample_post_processor")
        or DEFAULT_HOOKS.post_processor,
    )


def _load(name: str, field: str) -> Callable[..., Any] | None:
    try:
        return load_function(name) if name else None
    except SettingsError as error:
        raise SettingsError(f"{variable_of(field)}={name!r} is refused: {error}") from error


def _family_of(turn: Turn) -> str | bytes:
    """Equal for siblings."""
    if turn.parent_id is not None:
        return turn.parent_id
    return turn.token_ids[: turn.completion_span[0]].tobytes()


DEFAULT_HOOKS: Final = SampleHooks(picker=drop_retries, post_processor=train_once)
