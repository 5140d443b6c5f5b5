"""Both ways make one prompt, and the figures tell what was measured."""

from __future__ import annotations

import pytest

from benchmarks.turns import Options, Outcome, Round, measure_prompts, render, verdicts_of
from sessions.tokens.families.table import DEFAULT
from sessions.tokens.prompts import PromptBuilder
from sessions.tokens.templates import ChatTemplate
from tests.support.tokenizers import byte_tokenizer

PLAIN = (
    "{% for m in messages %}[{{ m.role }}:{{ m.content }}]{% endfor %}"
    "{% if add_generation_prompt %}[{% endif %}"
)


def outcome_of(busy_ms: float, joined_s: float = 0.001, sessions: int = 2) -> Outcome:
    one = Round(turn_count=4, wall_s=2.0, cpu_s=0.1, idle_ms=[1.0], busy_ms=[busy_ms])
    return Outcome(
        options=Options(
            token_count=1024, session_count=sessions, turn_count=2, engine_s=0.0, round_count=1
        ),
        joined_s=[joined_s, joined_s],
        whole_s=[0.02, 0.02],
        rounds=[one] * min(sessions, 1),
    )


def test_as_many_prompts_are_made_in_both_ways():
    builder = PromptBuilder(byte_tokenizer(), DEFAULT, ChatTemplate(PLAIN, name="t"))
    joined, whole = measure_prompts(builder, 1024)
    assert len(joined) == len(whole) > 0


def test_a_template_that_does_not_only_append_is_noticed():
    rewriting = "{{ messages|length if messages|length > 3 }}" + PLAIN
    builder = PromptBuilder(byte_tokenizer(), DEFAULT, ChatTemplate(rewriting, name="t"))
    with pytest.raises(ValueError, match="differ"):
        measure_prompts(builder, 1024)


@pytest.mark.parametrize(("busy_ms", "is_met"), [(49.0, True), (51.0, False)])
def test_the_waits_of_small_questions_have_a_goal(busy_ms: float, is_met: bool):  # noqa: FBT001
    assert [verdict.is_met for verdict in verdicts_of(outcome_of(busy_ms))] == [True, is_met]


@pytest.mark.parametrize(("joined_s", "is_met"), [(0.0019, True), (0.0021, False)])
def test_a_joined_prompt_must_cost_a_tenth(joined_s: float, is_met: bool):  # noqa: FBT001
    assert verdicts_of(outcome_of(1.0, joined_s))[0].is_met is is_met


def test_the_figures_name_what_was_measured():
    text = render(outcome_of(51.0))
    for told in ("1024 tokens", "2 sessions, 2.0 turns a second", "25.0 ms a turn", "MISSED"):
        assert told in text


def test_prompts_alone_tell_nothing_of_sessions():
    text = render(outcome_of(1.0, sessions=0))
    assert "x" in text
    assert "questions" not in text
