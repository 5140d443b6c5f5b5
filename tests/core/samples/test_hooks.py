import dataclasses

import pytest

from sessions.core.samples.hooks import SampleDraft
from sessions.core.samples.session_tree import session_tree_of
from tests.support.samples import node_of, turn_of


def test_the_tokens_of_a_draft_cannot_be_changed_its_mask_and_metadata_can():
    turn = turn_of([1], [10])
    (leaf,) = session_tree_of([node_of(turn, 0, None)]).leaves
    draft = SampleDraft(
        leaf=leaf,
        token_ids=memoryview(turn.ids.whole()).toreadonly(),
        prompt_count=1,
        response="x",
        status="completed",
        completions=(),
        loss_mask=bytearray(b"\x01"),
    )
    with pytest.raises(TypeError):
        draft.token_ids[0] = 2
    draft.loss_mask[0] = 0
    draft.metadata["x"] = draft.reward = 1
    assert dataclasses.replace(draft) != draft, "drafts are compared by identity"
