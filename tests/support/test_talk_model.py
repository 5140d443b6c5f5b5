"""The model of conversations by hand: what it says in the cases that its page names."""

from __future__ import annotations

import json

import pytest

from tests.support.talk_model import Message, Said, SessionModel, Turn


def model_of(**options: object) -> SessionModel:
    return SessionModel(lambda text: [ord(letter) for letter in text], **options)  # type: ignore[arg-type]


def user(text: str) -> Message:
    return {"role": "user", "content": text}


def attempt(model: SessionModel, *sent: Message, mark: str = "first") -> tuple[str, Turn | None]:
    messages = list(sent)
    verdict = model.attempt("t", json.dumps(messages).encode(), messages, mark)
    return verdict.code or verdict.is_, verdict.turn


def turn(model: SessionModel, *sent: Message, finish: str = "stop", mark: str = "first") -> Turn:
    """A turn that is recorded."""
    what, begun = attempt(model, *sent, mark=mark)
    assert what == "begins"
    assert begun is not None
    end(model, begun, finish)
    return begun


def end(model: SessionModel, begun: Turn, finish: str = "stop") -> bool:
    text = f"reply {len(model.turns)}"
    said = Said(text=text, reply={"role": "assistant", "content": text}, finish=finish)
    model.answer(begun, said)
    can_commit = model.can_commit(begun)
    if can_commit:
        model.commit(begun)
    return can_commit


def test_the_next_turn_begins_with_all_tokens_of_the_last_one():
    model = model_of()
    first = turn(model, user("a"))
    second = turn(model, *first.conversation, user("b"))
    assert second.base is first
    assert second.prompt[: len(first.tokens)] == first.tokens
    assert model.turns == [first, second]


def test_a_linear_session_goes_one_turn_back_and_no_further():
    model = model_of()
    first = turn(model, user("a"))
    second = turn(model, *first.conversation, user("b"))
    third = turn(model, *first.conversation, user("c"))
    assert model.turns == [first, third]
    assert second not in model.turns
    assert attempt(model, user("d"))[0] == "history_mismatch"


def test_a_tree_keeps_all_turns_and_does_not_go_on_from_one_that_was_cut():
    model = model_of(is_tree=True)
    first = turn(model, user("a"))
    turn(model, *first.conversation, user("b"))
    cut = turn(model, *first.conversation, user("b"), finish="length")
    assert len(model.turns) == 3
    assert attempt(model, *cut.conversation, user("c"))[0] == "turn_truncated"


@pytest.mark.parametrize(("is_tree", "what"), [(False, "joins"), (True, "begins")])
def test_an_unmarked_equal_attempt_joins_in_a_linear_session_only(*, is_tree: bool, what: str):
    model = model_of(is_tree=is_tree)
    attempt(model, user("a"))
    assert attempt(model, user("a"))[0] == what
    assert attempt(model, user("a"), mark="again")[0] == "joins"


def test_a_marked_retry_gets_the_newest_turn_again_until_another_one_follows():
    model = model_of()
    first = turn(model, user("a"), mark="k1")
    assert attempt(model, user("a"), mark="k1") == ("again", first)
    assert attempt(model, user("b"), mark="k1")[0] == "idempotency_key_reused"
    turn(model, *first.conversation, user("b"))
    assert attempt(model, user("a"), mark="again")[0] == "history_mismatch"


def test_of_two_turns_on_the_same_head_a_linear_session_records_one():
    model = model_of()
    _, one = attempt(model, user("a"))
    _, other = attempt(model, user("b"))
    assert one is not None
    assert other is not None
    assert end(model, other)
    assert not end(model, one)
    assert model.turns == [other]


def test_nothing_is_recorded_behind_a_limit_or_an_end():
    model = model_of(max_turns=1)
    first = turn(model, user("a"))
    assert attempt(model, *first.conversation, user("b"))[0] == "turn_limit_reached"
    _, again = attempt(model, user("c"))  # takes the place of the first
    assert again is not None
    model.is_deleted = True
    assert not end(model, again)
    assert attempt(model, user("d"))[0] == "session_gone"
