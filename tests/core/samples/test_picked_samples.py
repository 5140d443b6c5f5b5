"""One sample for each picked leaf, and nothing that a picker does can harm."""

from collections.abc import Callable, Sequence
from typing import Any

import pytest

from sessions.core.histories.node import Node
from sessions.core.samples.assembly import EmptyReason, SampleRules
from sessions.core.samples.default_hooks import drop_retries
from sessions.core.samples.hooks import Picker
from sessions.core.samples.picked_samples import PickedSample, picked_samples_of
from sessions.errors.samples import SampleHookError, SamplesMisalignedError
from tests.support.samples import decode, node_of, turn_of


def nodes() -> list[Node]:
    """A root, its two children, and another root."""
    root = node_of(turn_of([1], [10], committed_at=1.0), 0, None)
    first = node_of(turn_of([1, 10, 2], [11], committed_at=2.0), 1, root)
    second = node_of(turn_of([1, 10, 3], [12], committed_at=3.0), 2, root)
    other = node_of(turn_of([5], [13, 14], committed_at=4.0), 3, None)
    return [root, first, second, other]


def all_leaves(tree: Any, _metadata: Any) -> Sequence[Any]:  # noqa: ANN401 - a hook
    return list(tree.leaves)


def pick(
    given: Sequence[Node], picker: Picker = all_leaves, limit: int | None = None, **metadata: object
) -> list[PickedSample] | EmptyReason:
    rules = SampleRules(max_trim_count=0, max_seq_len=limit)
    return picked_samples_of(given, rules=rules, decode=decode, picker=picker, metadata=metadata)


def made(given: Sequence[Node], picker: Picker = all_leaves) -> list[PickedSample]:
    found = pick(given, picker)
    assert not isinstance(found, EmptyReason)
    return found


def test_every_picked_leaf_becomes_a_sample_of_its_path():
    found = made(nodes())
    assert [list(picked.sample.token_ids) for picked in found] == [
        [1, 10, 2, 11],
        [1, 10, 3, 12],
        [5, 13, 14],
    ]
    assert [picked.leaf.node_id for picked in found] == ["n1", "n2", "n3"]
    assert [picked.node.node_id for picked in found] == ["n1", "n2", "n3"]
    assert [len(picked.sample.spans) for picked in found] == [2, 2, 1]


def test_times_are_those_of_the_path():
    lifecycle = made(nodes())[1].sample.lifecycle
    assert isinstance(lifecycle, list)
    assert [(told["turn"], told["t1"], told["prev_t1"]) for told in lifecycle] == [
        (1, 1.0, None),
        (2, 3.0, 1.0),
    ]


def test_the_order_is_that_of_the_picker():
    found = made(nodes(), lambda tree, _: list(tree.leaves)[::-1])
    assert [picked.leaf.node_id for picked in found] == ["n3", "n2", "n1"]


def test_retries_are_left_out_by_default():
    assert [picked.leaf.node_id for picked in made(nodes(), drop_retries)] == ["n2", "n3"]


def test_no_sample_says_why():
    assert pick([]) is EmptyReason.NO_RECORDS
    assert pick(nodes(), lambda *_: []) is EmptyReason.NONE_PICKED
    assert pick(nodes(), limit=1) is EmptyReason.ALL_TRUNCATED


def test_a_leaf_that_is_truncated_to_nothing_leaves_the_others():
    root = node_of(turn_of([1] * 9, [10]), 0, None)
    found = pick([root, node_of(turn_of([1], [2]), 1, None)], limit=5)
    assert not isinstance(found, EmptyReason)
    assert [picked.leaf.node_id for picked in found] == ["n1"]


def test_the_picker_is_given_what_the_client_sent():
    seen: list[object] = []

    def picker(tree: Any, metadata: Any) -> Sequence[Any]:  # noqa: ANN401 - a hook
        seen.append(metadata)
        return list(tree.leaves)

    pick(nodes(), picker, task={"id": 1})
    assert seen == [{"task": {"id": 1}}]


def changing(_tree: Any, metadata: Any) -> Sequence[Any]:  # noqa: ANN401 - a hook
    metadata["task"]["id"] = 2
    return []


def raising(*_: object) -> Sequence[Any]:
    raise ValueError("no leaf will do")


@pytest.mark.parametrize(
    ("picker", "told"),
    [
        (raising, "the picker raised ValueError: no leaf will do"),
        (changing, "the picker changed the metadata that it was given"),
        (lambda tree, _: list(tree.turns), "gives at place 0 what it was not given"),
        (lambda tree, _: [tree.leaves[0]] * 2, "gives at place 1"),
        (lambda *_: None, "gives NoneType instead of a list"),
    ],
)
def test_a_picker_that_does_what_it_must_not_is_refused(picker: Callable[..., Any], told: str):
    metadata: dict[str, Any] = {"task": {"id": 1}}
    with pytest.raises(SampleHookError, match=told):
        pick(nodes(), picker, **metadata)
    assert metadata == {"task": {"id": 1}}


def test_a_leaf_of_which_no_sample_can_be_made_is_named():
    given = nodes()
    given.append(node_of(turn_of([1], [2]), 4, given[0]))
    with pytest.raises(SamplesMisalignedError, match="leaf n4: turn 1") as caught:
        pick(given)
    assert caught.value.code == "samples_misaligned"
    assert len(made(given, lambda tree, _: list(tree.leaves)[:2])) == 2


def test_the_only_leaf_needs_no_name():
    given = nodes()[:1]
    broken = node_of(turn_of([1], [2]), 1, given[0])
    with pytest.raises(SamplesMisalignedError, match=r"^turn 1: the history"):
        pick([*given, broken])
