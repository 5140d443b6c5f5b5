"""Sizes of a training run, and texts of a known number of tokens."""

from __future__ import annotations

import itertools

import pytest

from benchmarks.shape import MIB, Shape, replay_bytes, text_of_tokens
from sessions.sim.experts import Layout
from sessions.sim.options import options_of
from sessions.tokens.tokenizer import Tokenizer, load_tokenizer

FULL = Shape(sessions=32, turns=50, final_body_bytes=134 * MIB)


@pytest.fixture(scope="module")
def tokenizer() -> Tokenizer:
    return load_tokenizer("pkg:qwen3")


def test_replies_grow_to_the_wanted_size_when_contexts_grow_in_equal_steps():
    targets = FULL.targets()
    steps = {after - before for before, after in itertools.pairwise(targets)}
    assert len(targets) == 50
    assert max(steps) - min(steps) <= 1
    assert replay_bytes(targets[-1], FULL.row_bytes) == pytest.approx(134 * MIB, abs=2000)


def test_the_full_shape_is_about_100_gib():
    assert FULL.total_bytes() == pytest.approx(105 * 1024 * MIB, rel=0.02)


def test_late_targets_end_where_all_targets_end_and_keep_their_step():
    late = FULL.late_targets(10)
    assert late[-1] == FULL.targets()[-1]
    assert late == sorted(late)
    assert {b - a for a, b in itertools.pairwise(late)} == {FULL.final_tokens // 50}


def test_late_targets_begin_at_a_token_when_there_are_few():
    tiny = Shape(sessions=1, turns=2, final_body_bytes=4000)
    assert tiny.late_targets(10)[0] == 1


@pytest.mark.parametrize("row_bytes", [1000, 3000])
def test_the_engine_makes_replies_of_the_computed_size(row_bytes: int):
    shape = Shape(sessions=1, turns=1, final_body_bytes=MIB, row_bytes=row_bytes)
    options = options_of(list(shape.engine_options(0.5).items()))
    layout = Layout(
        layers=options.layers,
        topk=options.topk,
        experts=options.experts,
        seed=options.seed,
        pad=options.pad,
    )
    ids = list(range(shape.final_tokens))
    assert len(layout.blob(ids[:-1])) == replay_bytes(len(ids), row_bytes)
    assert options.latency_s == 0.5
    assert options.context > shape.final_tokens


@pytest.mark.parametrize("count", [1, 2, 2000])
def test_a_text_has_exactly_so_many_tokens(tokenizer: Tokenizer, count: int):
    assert len(tokenizer.encode(text_of_tokens(count, "seed"))) == count


def test_texts_of_other_seeds_differ():
    assert text_of_tokens(50, "a") != text_of_tokens(50, "b")
    assert text_of_tokens(50, "a") == text_of_tokens(50, "a")
