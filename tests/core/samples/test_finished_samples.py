"""What a post-processor can do to samples, and what it cannot."""

from collections.abc import Callable, Sequence
from typing import Any

import pytest

from sessions.core.samples.assembly import EmptyReason, SampleRules
from sessions.core.samples.default_hooks import train_once
from sessions.core.samples.finished_samples import (
    FinishedSample,
    finished_samples_of,
    loss_mask_of,
)
from sessions.core.samples.hooks import PostProcessor, SampleDraft
from sessions.core.samples.picked_samples import PickedSample, picked_samples_of
from sessions.core.texts.json_text import JsonObject
from sessions.errors.samples import SampleHookError
from tests.support.samples import decode, node_of, turn_of

LEAF: JsonObject = {"leaf": {"node_id": "x"}}


def picked() -> list[tuple[PickedSample, JsonObject]]:
    """Two leaves that share their first turn."""
    root = node_of(turn_of([1], [10]), 0, None)
    nodes = [
        root,
        node_of(turn_of([1, 10, 2], [11, 12]), 1, root),
        node_of(turn_of([1, 10, 3, 4], [13]), 2, root),
    ]
    found = picked_samples_of(
        nodes,
        rules=SampleRules(max_trim_count=0),
        decode=decode,
        picker=lambda tree, _: tree.leaves,
        metadata={},
    )
    assert not isinstance(found, EmptyReason)
    return [(each, dict(LEAF)) for each in found]


def finish(
    hook: Callable[..., Any], *, has_reward: bool = False, **metadata: object
) -> list[FinishedSample]:
    return finished_samples_of(picked(), hook, metadata, has_reward=has_reward)


def each(change: Callable[[SampleDraft], object]) -> PostProcessor:
    def hook(drafts: Sequence[SampleDraft], _metadata: JsonObject) -> Sequence[SampleDraft]:
        for draft in drafts:
            change(draft)
        return drafts

    return hook


def unchanged(drafts: Sequence[SampleDraft], _metadata: JsonObject) -> Sequence[SampleDraft]:
    return drafts


def test_what_no_hook_changes_is_what_was_made():
    first, second = finish(unchanged)
    assert (list(first.loss_mask), list(second.loss_mask)) == ([1, 0, 1, 1], [1, 0, 0, 1])
    assert first.metadata == {"lifecycle": first.sample.lifecycle, **LEAF}
    assert (first.reward, first.has_reward) == (None, False)


def test_a_draft_shows_the_sample():
    seen: list[SampleDraft] = []
    finish(each(seen.append))
    draft = seen[0]
    assert (draft.leaf.node_id, list(draft.token_ids)) == ("n1", [1, 10, 2, 11, 12])
    assert (draft.prompt_count, draft.response, draft.status) == (1, "<10><2><11><12>", "completed")
    spans = [(c.node_id, c.start, c.stop) for c in draft.completions]
    assert spans == [("n0", 0, 1), ("n1", 2, 4)]


def test_shared_completions_train_once_by_default():
    first, second = finish(train_once, reward=1)
    assert (list(first.loss_mask), list(second.loss_mask)) == ([1, 0, 1, 1], [0, 0, 0, 1])
    assert (first.reward, first.has_reward) == (1, True)


def test_samples_can_be_left_out_and_put_in_another_order():
    assert finish(lambda *_: []) == []
    first, second = finish(lambda drafts, _: drafts[::-1])
    assert [list(first.sample.token_ids), list(second.sample.token_ids)] == [
        [1, 10, 3, 4, 13],
        [1, 10, 2, 11, 12],
    ]


def test_a_reward_that_is_due_is_there_though_none_was_assigned():
    assert [finished.has_reward for finished in finish(unchanged, has_reward=True)] == [True, True]


def test_the_hook_gets_a_copy_of_the_metadata():
    metadata: dict[str, Any] = {"task": {"id": 1}}

    def hook(drafts: Any, told: Any) -> Any:  # noqa: ANN401 - a hook
        told["task"]["id"] = 2
        return drafts

    finish(hook, **metadata)
    assert metadata == {"task": {"id": 1}}


def deep(levels: int) -> JsonObject:
    value: JsonObject = {}
    for _ in range(levels):
        value = {"x": value}
    return value


@pytest.mark.parametrize(
    ("change", "told"),
    [
        (lambda draft: draft.loss_mask.append(0), "has no loss mask of 4 bytes"),
        (lambda draft: setattr(draft, "loss_mask", [1, 0, 1, 1]), "has no loss mask of 4"),
        (lambda draft: draft.loss_mask.__setitem__(1, 1), "trains on tokens that were not sampled"),
        (lambda draft: draft.loss_mask.__setitem__(0, 2), "trains on tokens that were not sampled"),
        (lambda draft: setattr(draft, "metadata", [1]), "has metadata that are no object"),
        (lambda draft: draft.metadata.update(x={1}), "metadata or a reward that are no JSON"),
        (lambda draft: setattr(draft, "reward", b"1"), "metadata or a reward that are no JSON"),
        (lambda draft: draft.metadata.update(deep(64)), "nested by more than 64 levels"),
        (lambda draft: draft.token_ids.__setitem__(0, 5), "TypeError: cannot modify read-only"),
        (lambda draft: 1 // 0, "raised ZeroDivisionError"),
    ],
)
def test_what_no_sample_can_be_is_refused(change: Callable[[Any], object], told: str):
    with pytest.raises(SampleHookError, match=told) as caught:
        finish(each(change))
    assert "post-processor" in caught.value.message


@pytest.mark.parametrize("given", [None, [1], "drafts"])
def test_what_was_not_given_cannot_be_sent(given: object):
    with pytest.raises(SampleHookError, match="the post-processor gives"):
        finish(lambda *_: given)


def test_a_draft_that_was_dropped_from_the_list_that_was_given_can_be_missed():
    def hook(drafts: Any, _: Any) -> Any:  # noqa: ANN401 - a hook
        drafts.pop()
        return drafts

    assert len(finish(hook)) == 1


def test_everything_sampled_is_trained_on_unless_told():
    assert list(loss_mask_of(picked()[1][0].sample)) == [1, 0, 0, 1]
