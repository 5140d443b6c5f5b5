from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sessions.tokens.comparison import MismatchType, compare
from sessions.tokens.families.declaration import Family
from sessions.tokens.families.table import DEFAULT, family_of
from tests.support.tokenizers import CHATML, byte_tokenizer

TOKENIZER = byte_tokenizer(*CHATML)
CHAT = family_of("qwen3")
TURNS = "<|im_start|>user\nhi<|im_end|>\n<|im_start|>assistant\nyo<|im_end|>"


def differences(
    expected: str, actual: str, family: Family = CHAT
) -> list[tuple[MismatchType, int]]:
    found = compare(TOKENIZER.encode(expected), TOKENIZER.encode(actual), family, TOKENIZER)
    return [(mismatch.type, mismatch.segment_index) for mismatch in found]


def test_equal_sequences_do_not_differ():
    assert differences(TURNS, TURNS) == []


def test_what_the_template_writes_after_the_last_turn_is_overlooked():
    assert differences(TURNS + "\n", TURNS) == []
    assert differences(TURNS, TURNS + "\n\n") == []


def test_the_same_tail_counts_for_a_family_that_overlooks_nothing():
    assert differences(TURNS + "\n", TURNS, DEFAULT) == [(MismatchType.SPECIAL_TOKEN_COUNT, -1)]


def test_what_the_assistant_said_differs_as_assistant_text():
    assert differences(TURNS, TURNS.replace("yo", "oy")) == [(MismatchType.ASSISTANT_TEXT, 5)]


def test_what_anybody_else_said_differs_as_other_text():
    assert differences(TURNS, TURNS.replace("hi", "ho")) == [(MismatchType.NON_ASSISTANT_TEXT, 1)]
    assert differences(TURNS, TURNS.replace(">\n<", "><")) == [
        (MismatchType.SPECIAL_TOKEN_COUNT, -1)
    ]


def test_a_speaker_that_changes_is_no_assistant_text():
    changed = TURNS.replace("assistant\nyo", "user\nyo")
    assert differences(TURNS, changed) == [(MismatchType.NON_ASSISTANT_TEXT, 5)]
    assert differences(changed, TURNS) == [(MismatchType.NON_ASSISTANT_TEXT, 5)]


def test_a_family_without_assistant_start_has_no_assistant_text():
    assert differences(TURNS, TURNS.replace("yo", "oy"), DEFAULT) == [
        (MismatchType.NON_ASSISTANT_TEXT, 5)
    ]


def test_another_special_token_at_the_same_place_differs_as_its_type():
    assert differences("<|im_start|>a<|im_end|>", "<|im_start|>a<|im_start|>") == [
        (MismatchType.SPECIAL_TOKEN_TYPE, 2)
    ]


def test_all_differences_are_listed_in_order():
    changed = TURNS.replace("yo", "oy").replace("hi", "ho")
    assert differences(TURNS, changed) == [
        (MismatchType.NON_ASSISTANT_TEXT, 1),
        (MismatchType.ASSISTANT_TEXT, 5),
    ]


def test_a_token_at_which_the_family_does_not_cut_is_text():
    thought = TURNS.replace("yo", "<think>\n\n</think>\n\nyo")
    assert differences(TURNS, thought) == [(MismatchType.ASSISTANT_TEXT, 5)]
    assert differences(TURNS, thought, DEFAULT) == [(MismatchType.SPECIAL_TOKEN_COUNT, -1)]


def test_a_start_that_is_one_special_token_covers_the_text_after_it():
    family = replace(CHAT, assistant_start="<think>", segment_specials=("<think>", "</think>"))
    assert differences("<think>a</think>b", "<think>c</think>d", family) == [
        (MismatchType.ASSISTANT_TEXT, 1),
        (MismatchType.NON_ASSISTANT_TEXT, 3),
    ]


def test_other_tokens_of_the_same_text_do_not_differ():
    actual = [*TOKENIZER.encode(TURNS)[:-1], 4000, TOKENIZER.special_ids["<|im_end|>"]]
    assert compare(TOKENIZER.encode(TURNS), actual, CHAT, TOKENIZER) == []


def test_a_mismatch_is_written_as_json_with_both_texts():
    (found,) = compare(
        TOKENIZER.encode(TURNS), TOKENIZER.encode(TURNS.replace("yo", "no")), CHAT, TOKENIZER
    )
    assert found.to_json() == {
        "type": "assistant_text",
        "segment_index": 5,
        "expected_text": "assistant\nyo",
        "actual_text": "assistant\nno",
        "detail": "12 tokens expected, 12 found",
    }


def test_unpaired_segments_say_where_they_part():
    (found,) = compare(
        TOKENIZER.encode(TURNS), TOKENIZER.encode(TURNS[: TURNS.index("hi")]), CHAT, TOKENIZER
    )
    assert found.to_json() == {
        "type": "special_token_count",
        "segment_index": -1,
        "expected_text": "",
        "actual_text": "",
        "detail": "7 segments expected, 2 found; the first 2 pair",
    }


IDS = st.lists(st.integers(0, 261), max_size=12)


@pytest.mark.parametrize("family", [CHAT, DEFAULT], ids=lambda family: family.name)
@settings(derandomize=True, deadline=None)
@given(expected=IDS, actual=IDS)
def test_any_sequences_compare_and_equal_ones_do_not_differ(
    family: Family, expected: list[int], actual: list[int]
):
    assert compare(expected, expected, family, TOKENIZER) == []
    for mismatch in compare(expected, actual, family, TOKENIZER):
        assert mismatch.type is MismatchType.SPECIAL_TOKEN_COUNT or (
            mismatch.expected_text != mismatch.actual_text
        )
