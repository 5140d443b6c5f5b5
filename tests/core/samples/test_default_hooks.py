"""Which leaves are samples, and who trains on what several samples have."""

from collections.abc import Sequence

import pytest

from sessions.core.histories.node import Node
from sessions.core.samples.default_hooks import (
    DEFAULT_HOOKS,
    drop_retries,
    load_hooks,
    train_once,
)
from sessions.core.samples.hooks import Completion, SampleDraft
from sessions.core.samples.session_tree import Leaf, session_tree_of
from sessions.errors.unseen import SettingsError
from tests.support.samples import node_of, turn_of


def forest(*parents: int | None, prompts: dict[int, list[int]] | None = None) -> list[Node]:
    """Turns by the numbers of their parents; roots have prompts of their own unless told."""
    nodes: list[Node] = []
    for seq, parent in enumerate(parents):
        prompt = (prompts or {}).get(seq, [100 + seq])
        turn = turn_of(prompt, [seq])
        nodes.append(node_of(turn, seq, None if parent is None else nodes[parent]))
    return nodes


def picked(nodes: Sequence[Node]) -> list[str]:
    return [leaf.node_id for leaf in drop_retries(session_tree_of(nodes), {})]


def test_a_linear_session_has_one_leaf_and_it_is_picked():
    assert picked(forest(None, 0, 1)) == ["n2"]


def test_a_leaf_with_a_later_sibling_is_a_retry():
    assert picked(forest(None, 0, 0, 0)) == ["n3"]


def test_a_later_sibling_counts_though_it_is_no_leaf():
    assert picked(forest(None, 0, 0, 2)) == ["n3"]


def test_a_turn_that_was_gone_on_from_is_no_retry_whatever_came_later():
    assert picked(forest(None, 0, 1, 0)) == ["n2", "n3"]


def test_leaves_of_different_parents_are_no_siblings():
    assert picked(forest(None, 0, 1, 0, 3)) == ["n4", "n2"]


def test_roots_of_different_prompts_are_no_siblings():
    assert picked(forest(None, None, None)) == ["n2", "n1", "n0"]


def test_a_first_turn_that_was_tried_again_is_a_retry():
    same = {0: [1, 2], 2: [1, 2]}
    assert picked(forest(None, None, None, prompts=same)) == ["n2", "n1"]


def test_the_deepest_leaf_comes_first_then_the_latest():
    assert picked(forest(None, 0, 1, None, None, 4)) == ["n2", "n5", "n3"]


def draft_of(leaf: Leaf, *completions: tuple[str, int, int], count: int) -> SampleDraft:
    mask = bytearray(count)
    for _, start, stop in completions:
        mask[start:stop] = b"\x01" * (stop - start)
    return SampleDraft(
        leaf=leaf,
        token_ids=memoryview(b""),
        prompt_count=0,
        response="",
        status="completed",
        completions=tuple(Completion(node_id=n, start=a, stop=b) for n, a, b in completions),
        loss_mask=mask,
        metadata={"lifecycle": {}, "mine": 1},
    )


@pytest.fixture
def drafts() -> list[SampleDraft]:
    """Two samples that share their first turn."""
    first, second = session_tree_of(forest(None, 0, 0)).leaves
    return [
        draft_of(first, ("n0", 0, 2), ("n1", 3, 5), count=5),
        draft_of(second, ("n0", 0, 2), ("n2", 4, 6), count=6),
    ]


def test_a_shared_completion_trains_in_the_first_sample_alone(drafts: list[SampleDraft]):
    assert list(train_once(drafts, {})) == drafts
    assert [list(draft.loss_mask) for draft in drafts] == [[1, 1, 0, 1, 1], [0, 0, 0, 0, 1, 1]]


def test_the_agents_metadata_and_its_reward_reach_every_sample(drafts: list[SampleDraft]):
    train_once(drafts, {"reward": {"total": 0.5}, "mine": 2, "task": "t"})
    for draft in drafts:
        assert draft.reward == {"total": 0.5}
        assert draft.metadata == {
            "lifecycle": {},
            "mine": 2,
            "task": "t",
            "reward": {"total": 0.5},
        }


def test_without_metadata_nothing_is_assigned(drafts: list[SampleDraft]):
    train_once(drafts, {})
    assert [draft.reward for draft in drafts] == [None, None]
    assert drafts[0].metadata == {"lifecycle": {}, "mine": 1}


def test_hooks_are_the_default_unless_they_are_named():
    assert load_hooks("", "") == DEFAULT_HOOKS
    module = DEFAULT_HOOKS.picker.__module__
    hooks = load_hooks(f"{module}:train_once", f"{module}:drop_retries")
    assert [hooks.picker, hooks.post_processor] == [train_once, drop_retries]
    assert load_hooks(f"{module}:train_once", "").post_processor is train_once


def test_a_hook_that_is_misspelled_is_refused_by_its_setting():
    with pytest.raises(
        SettingsError, match="SESSIONS_SAMPLE_PICKER='json:mni' is refused: it names"
    ):
        load_hooks("json:mni", "")
    with pytest.raises(
        SettingsError, match="SESSIONS_SAMPLE_POST_PROCESSOR='nowhere:x' is refused"
    ):
        load_hooks("", "nowhere:x")
