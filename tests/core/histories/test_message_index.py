"""The index finds what a search through all conversations would, and looks at little."""

from collections.abc import Hashable
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sessions.core.histories.message_index import MessageIndex
from sessions.core.matchers.fields import STRICT
from sessions.core.matchers.matcher import Difference
from tests.support.histories import Message, reply, user


class Comparing:
    """Compares messages, and counts how often."""

    def __init__(self) -> None:
        self.count = 0

    def difference_of(self, stored: Message, sent: Message) -> Difference | None:
        self.count += 1
        return STRICT.difference_of(stored, sent)

    def bucket_of(self, message: Message) -> Hashable:
        return STRICT.bucket_of(message)


def index_of(*conversations: list[Message]) -> tuple[MessageIndex[int], Comparing]:
    comparing = Comparing()
    index: MessageIndex[int] = MessageIndex(comparing)
    for number, messages in enumerate(conversations):
        index.reach(None, messages).value = number
    comparing.count = 0
    return index, comparing


def test_the_deepest_beginning_is_found():
    index, _ = index_of([user("1")], [user("1"), reply("a"), user("2")], [user("2")])
    assert index.deepest([user("1"), reply("a"), user("2"), reply("b")]) == 1
    assert index.deepest([user("1"), reply("a"), user("3")]) == 0
    assert index.deepest([user("3")]) is None
    assert index.deepest([]) is None


def test_a_value_of_zero_is_a_value():
    index, _ = index_of([user("1")])
    assert index.deepest([user("1"), user("2")]) == 0


def test_equal_conversations_lead_to_one_place():
    index, _ = index_of()
    assert index.reach(None, [user("1")]) is index.reach(None, [user("1")])


def test_a_place_is_where_to_go_on():
    index, _ = index_of()
    place = index.reach(None, [user("1")])
    place.value = 0
    index.reach(place, [reply("a")]).value = 1
    assert index.deepest([user("1"), reply("a")]) == 1


@pytest.mark.parametrize("count", [10, 400])
def test_looking_up_costs_what_the_request_costs_however_many_conversations_there_are(count: int):
    long = [user(f"step {number}") for number in range(50)]
    others = [[*long[: number % 50], user(f"other {number}")] for number in range(count)]
    index, comparing = index_of(long, *others)
    sent = [dict(message) for message in long]  # as a client sends them: equal, not the same
    assert index.deepest(sent) == 0
    assert comparing.count == len(long)


def test_roots_of_different_texts_are_not_compared():
    index, comparing = index_of(*([user(f"question {number}")] for number in range(400)))
    assert index.deepest([user("question 7")]) == 7
    assert comparing.count == 1


VALUES: st.SearchStrategy[Any] = st.sampled_from(
    [None, "", [], "a", "b", ["a"], [{"text": "a"}], 1, True, {}]
)
MESSAGES = st.fixed_dictionaries(
    {},
    optional={
        "role": st.sampled_from([None, "", "user", "assistant", 1, ["user"]]),
        "content": VALUES,
        "reasoning": VALUES,
        "reasoning_content": VALUES,
        "tool_calls": VALUES,
        "name": VALUES,
    },
)


@settings(derandomize=True, deadline=None)
@given(
    st.lists(st.lists(MESSAGES, min_size=1, max_size=3), max_size=6),
    st.lists(MESSAGES, max_size=4),
)
def test_the_index_finds_what_a_plain_search_finds(
    conversations: list[list[Message]], sent: list[Message]
):
    index, _ = index_of(*conversations)
    found = [
        (len(messages), number)
        for number, messages in enumerate(conversations)
        if len(messages) <= len(sent)
        and all(STRICT.difference_of(a, b) is None for a, b in zip(messages, sent, strict=False))
    ]
    assert index.deepest(sent) == (max(found)[1] if found else None)
