"""Conversations over a server before vLLM: what is sampled is what is recorded and trained on."""

from __future__ import annotations

import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np
import pytest

from sessions.client.samples import Sample
from sessions.tokens.tokenizer import Tokenizer
from tests.support.group import RunningGroup
from tests.support.vllm_engine import EXPERTS, LAYERS, TOPK, VLLMEngine
from tests.support.vllm_talks import (
    END,
    TOOLS,
    Talk,
    experts_in,
    log_probs_in,
    open_talk,
    prompt_in,
    sampled_in,
    spelled,
    user,
)
from tests.vllm.conftest import Figures

EMPTY = "<think>\n\n</think>\n\n"
CALL = '<tool_call>\n{"name": "get_weather", "arguments": {"city":   "Óslo"}}\n</tool_call>'
TALKS = 8
TURNS = 4


@dataclass(frozen=True, slots=True, kw_only=True)
class Played:
    """A conversation that was held, and what the server has of it."""

    talk: Talk
    records: list[dict[str, Any]]
    sample: Sample


def play(url: str, tokenizer: Tokenizer, number: int) -> Played:
    """A call, its result, an answer, one more question whose answer is cut at its limit."""
    talk = open_talk(url, tokenizer)
    odd = spelled(tokenizer, f"<think>\nhm {number}\n</think>\n\nI ask.\n{CALL}{END}")
    asked = talk.say(user(f"weather {number}?"), forced=odd, tools=TOOLS)
    result = {"role": "tool", "tool_call_id": asked["tool_calls"][0]["id"], "content": "rain"}
    talk.say(result, forced=f"{EMPTY}It rains, number {number}.{END}", tools=TOOLS)
    talk.stream(
        user("sure?"), forced=f"<think>\nwell\n</think>\n\nYes \U0001f327.{END}", tools=TOOLS
    )
    talk.say(user("more"), forced=f"{EMPTY}one two three four", max_tokens=6, tools=TOOLS)
    (sample,) = talk.samples().samples
    return Played(talk=talk, records=talk.records(), sample=sample)


@pytest.fixture(scope="module")
def played(group: RunningGroup, tokenizer: Tokenizer, figures: Figures) -> list[Played]:
    began = time.monotonic()
    with ThreadPoolExecutor(TALKS) as threads:
        found = list(threads.map(lambda n: play(group.url, tokenizer, n), range(TALKS)))
    took_s = time.monotonic() - began
    sampled = sum(len(sampled_in(record)) for each in found for record in each.records)
    shards = len(group.pids) - 1 - ("router" in group.pids)
    figures[f"{TALKS} conversations of {TURNS} turns, shards: {shards}"] = (
        f"{took_s:.1f} s, {sampled} tokens"
    )
    return found


def test_the_engine_sampled_what_was_forced(played: list[Played]):
    for each in played:
        assert len(each.records) == TURNS
        for record, turn in zip(each.records, each.talk.turns, strict=True):
            assert sampled_in(record) == turn.forced[: len(sampled_in(record))]
        *whole, cut = each.records
        assert [len(sampled_in(r)) for r in whole] == [len(t.forced) for t in each.talk.turns[:-1]]
        assert len(sampled_in(cut)) == 6


def test_every_prompt_begins_with_all_tokens_before_it(played: list[Played]):
    for each in played:
        for before, after in pairwise(each.records):
            history = prompt_in(before) + sampled_in(before)
            assert prompt_in(after)[: len(history)] == history
            assert after["response"]["prompt_token_ids"] == prompt_in(after)


def test_odd_spellings_are_kept_and_no_encoding_gives_them(
    played: list[Played], tokenizer: Tokenizer
):
    for each in played:
        first, last = each.records[0], each.records[-1]
        sampled = sampled_in(first)
        assert tokenizer.encode(tokenizer.decode(sampled)) != sampled
        start = len(prompt_in(first))
        assert prompt_in(last)[start : start + len(sampled)] == sampled


def test_the_client_gets_calls_and_reasoning_under_both_names(played: list[Played]):
    for number, each in enumerate(played):
        first, second, third, cut = each.talk.turns
        assert first.message["content"] == "\n\nI ask.\n"
        assert first.message["reasoning_content"] == f"\nhm {number}\n"
        assert first.message["reasoning"] == first.message["reasoning_content"]
        (call,) = first.message["tool_calls"]
        assert call["function"] == {"name": "get_weather", "arguments": '{"city": "Óslo"}'}
        assert second.message["content"] == f"\n\nIt rains, number {number}."
        assert third.message["content"] == "\n\nYes \U0001f327."
        assert third.message["reasoning_content"] == "\nwell\n"
        assert [turn.finish_reason for turn in each.talk.turns] == [
            "tool_calls",
            "stop",
            "stop",
            "length",
        ]
        assert cut.message["content"] == "\n\none two"


def test_no_replay_reaches_the_client(group: RunningGroup, tokenizer: Tokenizer):
    talk = open_talk(group.url, tokenizer)
    body = talk.body(user("hi"), forced=tokenizer.encode(f"{EMPTY}ok{END}"))
    assert "routed_experts" not in talk.post(body).text


def test_log_probabilities_are_the_models_own(played: list[Played], engine: VLLMEngine):
    for each in played:
        told = [log_probs_in(record) for record in each.records]
        for record, probs in zip(each.records, told, strict=True):
            assert len(probs) == len(sampled_in(record))
            assert all(np.isfinite(probs))
            assert max(probs) <= 0
        mask = each.sample.loss_mask.astype(bool)
        assert each.sample.rollout_log_probs[mask].tolist() == [p for turn in told for p in turn]
        assert not each.sample.rollout_log_probs[~mask].any()
        if engine.is_real:  # of a random model no token is likely, forced or not
            assert np.mean(told[0]) < -2


def test_rows_of_experts_fit_the_tokens_and_are_in_the_sample(played: list[Played]):
    for each in played:
        for record in each.records:
            assert "replay_error" not in record
            rows = experts_in(record)
            assert rows.dtype == np.uint8
            tokens = len(prompt_in(record)) + len(sampled_in(record))
            assert rows.shape == (tokens - 1, LAYERS, TOPK)
            assert rows.max() < EXPERTS
        assert each.sample.rollout_routed_experts is not None
        assert each.sample.rollout_routed_experts.tolist() == experts_in(each.records[-1]).tolist()


def test_rows_of_earlier_tokens_are_told_again(
    played: list[Played], engine: VLLMEngine, figures: Figures
):
    """A real engine may compute a token's rows anew, in another order of additions."""
    pairs = [
        (experts_in(before), experts_in(after)[: len(experts_in(before))])
        for each in played
        for before, after in pairwise(each.records)
    ]
    same = np.concatenate([(before == after).all(axis=(1, 2)) for before, after in pairs])
    figures["rows that a later turn tells alike"] = f"{same.mean():.1%} of {len(same)}"
    assert same.mean() > (0.5 if engine.is_real else 0.999)


def test_real_experts_are_two_different_ones_a_layer(played: list[Played], engine: VLLMEngine):
    if not engine.is_real:
        pytest.skip("the simulated rows are noise")
    for each in played:
        rows = experts_in(each.records[-1])
        assert (rows[..., 0] != rows[..., 1]).all()
        assert len(np.unique(rows)) == EXPERTS


def test_a_sample_is_the_conversation(played: list[Played], tokenizer: Tokenizer):
    for each in played:
        last = each.records[-1]
        tokens = prompt_in(last) + sampled_in(last)
        assert each.sample.tokens.tolist() == tokens
        start = len(prompt_in(each.records[0]))
        assert each.sample.response_length == len(tokens) - start
        expected = np.zeros(len(tokens), np.uint8)
        for record in each.records:
            begin = len(prompt_in(record))
            expected[begin : begin + len(sampled_in(record))] = 1
        assert each.sample.loss_mask.tolist() == expected[start:].tolist()
        assert each.sample.status == "truncated"
        assert each.sample.response == tokenizer.decode(tokens[start:])


def test_a_turn_that_was_cut_in_a_call_goes_on_from_its_tokens(
    group: RunningGroup, tokenizer: Tokenizer
):
    talk = open_talk(group.url, tokenizer)
    ids = tokenizer.encode(f"{EMPTY}say\n{CALL}{END}")
    message = talk.say(user("hi"), forced=ids, tools=TOOLS, max_tokens=len(ids) - 6)
    assert "tool_calls" not in message
    assert message["content"].startswith("\n\nsay\n<tool_call>")
    talk.say(user("go on"), forced=f"{EMPTY}fine{END}", tools=TOOLS)
    first, second = talk.records()
    history = prompt_in(first) + ids[:-6]
    assert prompt_in(second)[: len(history)] == history


def test_without_thinking_the_answer_is_content(group: RunningGroup, tokenizer: Tokenizer):
    """The ids end in an empty block; only the kwargs tell the engine's parser."""
    talk = open_talk(group.url, tokenizer)
    switch = {"enable_thinking": False}
    for text in ("ok", "well"):
        message = talk.say(user("hi"), forced=text + END, chat_template_kwargs=switch)
        assert (message["content"], message["reasoning"]) == (text, None)
    assert tokenizer.decode(prompt_in(talk.records()[-1])).endswith(EMPTY)


def test_a_roll_back_samples_the_turn_again(group: RunningGroup, tokenizer: Tokenizer):
    talk = open_talk(group.url, tokenizer)
    talk.say(user("hi"), forced=f"{EMPTY}one{END}")
    before = talk.messages.copy()
    talk.say(user("on"), forced=f"{EMPTY}two{END}")
    talk.messages = before
    talk.say(user("on"), forced=f"{EMPTY}three{END}")
    first, second = talk.records()
    assert tokenizer.decode(sampled_in(second)) == f"{EMPTY}three{END}"
    (sample,) = talk.samples().samples
    assert sample.tokens.tolist() == prompt_in(second) + sampled_in(second)
    assert sampled_in(first) == talk.turns[0].forced
