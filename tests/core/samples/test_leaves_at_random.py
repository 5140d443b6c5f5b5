"""The laws of the default hooks, for any forest of turns and any limit."""

from collections import Counter
from typing import TypeAlias

from hypothesis import given, settings
from hypothesis import strategies as st

from sessions.core.histories.node import Node, leaves_of
from sessions.core.samples.assembly import EmptyReason, SampleRules
from sessions.core.samples.default_hooks import DEFAULT_HOOKS, drop_retries
from sessions.core.samples.finished_samples import finished_samples_of
from sessions.core.samples.picked_samples import picked_samples_of
from sessions.core.samples.session_tree import session_tree_of
from tests.support.samples import decode, node_of, turn_of

# (which earlier turn it goes on from, or a root; prompt tokens that it adds; tokens sampled; ended)
Step: TypeAlias = tuple[int | None, int, int, str]
STEPS: st.SearchStrategy[list[Step]] = st.lists(
    st.tuples(
        st.none() | st.integers(0, 9),
        st.integers(1, 2),
        st.integers(1, 3),
        st.sampled_from(["stop", "tool_calls", "stop", "length", "abort", ""]),
    ),
    min_size=1,
    max_size=10,
)


def forest_of(steps: list[Step]) -> list[Node]:
    """Turns of these steps; a number below 10 as a prompt token, so that prompts can be equal."""
    nodes: list[Node] = []
    for seq, (parent, asked, sampled, reason) in enumerate(steps):
        base = nodes[parent % len(nodes)] if parent is not None and nodes else None
        before = [] if base is None else base.checkpoint.ids.whole().tolist()
        reply = [100 * seq + 10 + index for index in range(sampled)]
        turn = turn_of([*before, *[asked] * asked], reply, finish_reason=reason)
        nodes.append(node_of(turn, seq, base))
    return nodes


def prompt_of(node: Node) -> list[int]:
    facts = node.checkpoint.facts
    return node.checkpoint.ids.whole().tolist()[: facts.prompt_count]


def are_siblings(one: Node, other: Node) -> bool:
    if one.parent is None and other.parent is None:
        return prompt_of(one) == prompt_of(other)
    return one.parent is other.parent


@settings(derandomize=True, deadline=None)
@given(STEPS)
def test_a_leaf_is_kept_unless_a_later_turn_is_its_sibling(steps: list[Step]):
    nodes = forest_of(steps)
    kept = [leaf.node_id for leaf in drop_retries(session_tree_of(nodes), {})]
    expected = [
        leaf
        for leaf in leaves_of(nodes)
        if not any(are_siblings(leaf, node) for node in nodes[leaf.seq + 1 :])
    ]
    assert set(kept) == {leaf.node_id for leaf in expected}
    by_id = {node.node_id: node for node in nodes}
    ranks = [(-len(by_id[name].path), -by_id[name].seq) for name in kept]
    assert ranks == sorted(ranks)
    assert nodes[-1].node_id in kept, "the newest turn is never a retry"


@settings(derandomize=True, deadline=None, max_examples=200)
@given(STEPS, st.none() | st.integers(1, 20))
def test_every_token_of_the_samples_is_trained_on_once(steps: list[Step], limit: int | None):
    nodes = forest_of(steps)
    picked = picked_samples_of(
        nodes,
        rules=SampleRules(max_trim_count=0, max_seq_len=limit),
        decode=decode,
        picker=DEFAULT_HOOKS.picker,
        metadata={},
    )
    if isinstance(picked, EmptyReason):
        assert picked is EmptyReason.ALL_TRUNCATED
        return
    finished = finished_samples_of(
        [(each, {}) for each in picked], DEFAULT_HOOKS.post_processor, {}, has_reward=True
    )
    trained: Counter[int] = Counter()
    sampled: set[int] = set()
    for each in finished:
        response = each.sample.token_ids[each.sample.response_start : each.sample.token_count]
        assert len(response) == len(each.loss_mask)
        trained.update(t for t, mask in zip(response, each.loss_mask, strict=True) if mask)
        # Every sampled token of a forest is another one; those of prompts are below 10.
        sampled.update(token for token in response if token >= 10)
    assert set(trained) == sampled
    assert set(trained.values()) <= {1}
