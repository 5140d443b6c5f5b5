"""Both histories against models that keep whole conversations and search through all of them."""

from dataclasses import dataclass, field
from typing import TypeAlias

from hypothesis import given, settings
from hypothesis import strategies as st

from sessions.core.histories.checkpoint import Plan
from sessions.core.histories.history import History
from sessions.core.histories.linear import LinearHistory
from sessions.core.histories.tree import TreeHistory
from sessions.errors.turns import HistoryMismatchError, TruncatedTurnError, TurnLimitError
from tests.support.histories import Message, apply, checkpoint_of, names_of, reply

CAP = 12


@dataclass
class PlainTurn:
    name: str
    path: list[Message]
    parent: int | None
    is_truncated: bool


@dataclass
class Model:
    """Turns in the order of their commits, each with its whole conversation."""

    turns: list[PlainTurn] = field(default_factory=list)

    def candidates(self, sent: list[Message]) -> list[int]:
        return [i for i, turn in enumerate(self.turns) if begins(sent, turn.path)]

    def rank(self, number: int) -> tuple[int, bool, int]:
        """Of the turns that fit, a tree goes on from the one that is highest here."""
        turn = self.turns[number]
        return len(turn.path), not turn.is_truncated, number


def begins(sent: list[Message], path: list[Message]) -> bool:
    return [*map(seen, path)] == [*map(seen, sent[: len(path)])]


def seen(message: Message) -> tuple[object, object]:
    """What the matcher sees of the messages of this test."""
    return message["role"], message["content"] or None


@dataclass
class Sending:
    """A request: the beginning of what a turn has as its conversation, and more; then its reply."""

    turn: int
    cut: int
    more: list[Message]
    text: str
    is_truncated: bool
    is_held: bool
    released: int


ROLES = st.sampled_from(["user", "assistant"])
TEXTS = st.sampled_from(["1", "2", "", None])
MESSAGES: st.SearchStrategy[Message] = st.builds(
    lambda role, content, name: {"role": role, "content": content, **name},
    ROLES,
    TEXTS,
    st.sampled_from([{}, {"name": "x"}]),
)
SENDINGS = st.builds(
    Sending,
    turn=st.integers(0, 6),
    cut=st.integers(0, 3),
    more=st.lists(MESSAGES, max_size=2),
    text=st.sampled_from(["1", "2"]),
    is_truncated=st.booleans(),
    is_held=st.booleans(),
    released=st.integers(0, 3),
)
Held: TypeAlias = tuple[Plan, int | None, list[Message], Sending]


def request_of(model: Model, sending: Sending) -> list[Message]:
    path = model.turns[sending.turn % len(model.turns)].path if model.turns else []
    sent = [*path[: max(0, len(path) - sending.cut)], *sending.more]
    # A client spells what it sends back in its own way.
    return [{**message, "extra": 1} for message in sent] or [{"role": "user", "content": "1"}]


def check(history: History, model: Model) -> None:
    numbers = [node.seq for node in history.nodes]
    assert numbers == list(range(len(model.turns)))
    assert names_of(history.records) == [turn.name for turn in model.turns]
    for node, turn in zip(history.nodes, model.turns, strict=True):
        assert node.messages == turn.path
        assert (None if node.parent is None else node.parent.seq) == turn.parent
    assert history.messages == (model.turns[-1].path if model.turns else [])
    assert history.head is (history.nodes[-1].checkpoint if model.turns else None)


def check_plan(history: History, model: Model, plan: Plan, base: int | None) -> None:
    node = None if base is None else history.nodes[base]
    assert plan.base is (None if node is None else node.checkpoint)
    assert list(plan.stored) == ([] if base is None else model.turns[base].path)


def commit(history: History, held: Held, name: str) -> list[str]:
    plan, _, _, sending = held
    reason = "length" if sending.is_truncated else "stop"
    assert len(plan.stored) + len(plan.tail) >= 1
    checkpoint = checkpoint_of(plan, name, reason)
    dropped = history.commit(plan, reply(sending.text), checkpoint)
    return names_of(checkpoint.record for checkpoint in dropped)


@settings(derandomize=True, deadline=None, max_examples=300)
@given(st.lists(SENDINGS, max_size=18))
def test_a_tree_does_what_a_search_through_all_conversations_does(sendings: list[Sending]):
    tree, model, held = TreeHistory(CAP), Model(), list[Held]()
    for number, sending in enumerate(sendings):
        sent = request_of(model, sending)
        found = model.candidates(sent)
        base = max(found, key=model.rank, default=None)
        try:
            plan = tree.plan(sent)
        except TurnLimitError:
            assert len(model.turns) == CAP
            continue
        except TruncatedTurnError:
            assert base is not None
            assert model.turns[base].is_truncated
            continue
        assert len(model.turns) < CAP
        assert base is None or not model.turns[base].is_truncated
        check_plan(tree, model, plan, base)
        held.append((plan, base, sent, sending))
        if sending.is_held:
            continue
        plan, base, sent, first = done = held.pop(sending.released % len(held))
        assert tree.can_commit(plan)
        assert commit(tree, done, str(number)) == []
        before = [] if base is None else model.turns[base].path
        path = [*before, *sent[len(before) :], reply(first.text)]
        model.turns.append(PlainTurn(str(number), path, base, first.is_truncated))
        check(tree, model)
    for plan, *_ in held:
        assert tree.can_commit(plan) == (len(model.turns) < CAP)


@settings(derandomize=True, deadline=None, max_examples=300)
@given(st.lists(SENDINGS, max_size=18))
def test_a_line_does_what_a_search_through_its_beginnings_does(sendings: list[Sending]):
    line, model, held = LinearHistory(), Model(), list[Held]()
    heads: dict[int, str | None] = {}
    for number, sending in enumerate(sendings):
        sent = request_of(model, sending)
        found = model.candidates(sent)
        kept = max(found) + 1 if found else 0
        try:
            plan = line.plan(sent)
        except HistoryMismatchError:
            assert len(model.turns) - kept > 1
            continue
        assert len(model.turns) - kept <= 1
        base = kept - 1 if kept else None
        check_plan(line, model, plan, base)
        heads[id(plan)] = model.turns[-1].name if model.turns else None
        held.append((plan, base, sent, sending))
        if sending.is_held:
            continue
        plan, base, sent, first = done = held.pop(sending.released % len(held))
        is_same_head = heads[id(plan)] == (model.turns[-1].name if model.turns else None)
        assert line.can_commit(plan) == is_same_head
        if not is_same_head:
            continue
        kept = 0 if base is None else base + 1
        dropped = [turn.name for turn in model.turns[kept:]]
        assert commit(line, done, str(number)) == dropped
        before = [] if base is None else model.turns[base].path
        path = [*before, *sent[len(before) :], reply(first.text)]
        del model.turns[kept:]
        model.turns.append(PlainTurn(str(number), path, base, first.is_truncated))
        check(line, model)


def test_the_models_see_what_the_matcher_sees():
    for ours in ("1", "", None):
        for theirs in ("1", "", None):
            messages = [{"role": "user", "content": content} for content in (ours, theirs)]
            line = LinearHistory()
            apply(line, line.plan([messages[0]]), "a")
            goes_on = line.plan([messages[1], reply("a")]).base is not None
            assert goes_on == (seen(messages[0]) == seen(messages[1]))
