"""From the turns of a session to one sample for each leaf that is picked.

Must not know how samples are finished or sent.

Spec: docs/samples.md#leaves
"""

from __future__ import annotations

import copy
from collections.abc import Sequence
from dataclasses import dataclass

from sessions.core.histories.node import Node
from sessions.core.samples.assembly import (
    Decode,
    EmptyReason,
    Sample,
    SampleRules,
    TurnSample,
    assemble,
)
from sessions.core.samples.hook_call import call_hook, chosen_of
from sessions.core.samples.hooks import Picker
from sessions.core.samples.session_tree import Leaf, session_tree_of
from sessions.core.texts.json_text import JsonObject
from sessions.errors.samples import (
    ReplayGapError,
    ReplayMismatchError,
    SampleHookError,
    SamplesMisalignedError,
)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class PickedSample:
    """The sample of one leaf.

    Attributes:
        leaf: As hooks see it.
        node: The same as the session has it.
        sample: The sample; its spans are those of the first turns of the path, in order.
    """

    leaf: Leaf
    node: Node
    sample: Sample


def picked_samples_of(
    nodes: Sequence[Node],
    *,
    rules: SampleRules,
    decode: Decode,
    picker: Picker,
    metadata: JsonObject,
) -> list[PickedSample] | EmptyReason:
    """Pick leaves and make their samples. Calls foreign code and works long: for threads.

    Args:
        nodes: All turns of a session, oldest first.
        rules: See there.
        decode: Token ids to text, special tokens kept.
        picker: Chooses the leaves.
        metadata: What the client sent along.

    Returns:
        The samples in the picker's order, or why there is none.

    Raises:
        SampleHookError: The picker raised, or did not give leaves of the tree, each once, or
            changed what it was given.
        UnprocessableError: No sample can be made of a picked leaf; see `assemble`.
    """
    if not nodes:
        return EmptyReason.NO_RECORDS
    leaves = _pick(nodes, picker, metadata)
    if not leaves:
        return EmptyReason.NONE_PICKED
    by_id = {node.node_id: node for node in nodes}
    found: list[PickedSample] = []
    for leaf in leaves:
        node = by_id[leaf.node_id]
        made = _assemble(node, rules, decode, is_alone=len(leaves) == 1)
        if isinstance(made, Sample):
            found.append(PickedSample(leaf=leaf, node=node, sample=made))
    return found or EmptyReason.ALL_TRUNCATED


def _pick(nodes: Sequence[Node], picker: Picker, metadata: JsonObject) -> list[Leaf]:
    tree = session_tree_of(nodes)
    given = copy.deepcopy(metadata)
    leaves = call_hook("picker", picker, tree, given)
    if given != metadata:
        raise SampleHookError("the picker changed the metadata that it was given")
    return chosen_of("picker", leaves, tree.leaves)


def _assemble(
    leaf: Node, rules: SampleRules, decode: Decode, *, is_alone: bool
) -> Sample | EmptyReason:
    turns = [TurnSample(ids=n.checkpoint.ids, facts=n.checkpoint.facts) for n in leaf.path]
    try:
        return assemble(turns, rules, decode)
    except (SamplesMisalignedError, ReplayMismatchError, ReplayGapError) as error:
        if is_alone:
            raise
        raise type(error)(f"leaf {leaf.node_id}: {error.message}") from error
