"""Experts asked for row by new row, which vLLM calls `routed_experts_prompt_start`."""

from collections.abc import Iterator

import numpy as np
import pytest

from sessions.tokens.tokenizer import Tokenizer
from tests.support.group import RunningGroup, open_groups
from tests.support.vllm_engine import LAYERS, TOPK, VLLMEngine
from tests.support.vllm_talks import END, experts_in, open_talk, prompt_in, sampled_in, user
from tests.vllm.conftest import ENV

EMPTY = "<think>\n\n</think>\n\n"


@pytest.fixture(scope="module")
def incremental(engine: VLLMEngine) -> Iterator[RunningGroup]:
    env = {**ENV, "SESSIONS_REPLAY_INCREMENTAL": "1", "SESSIONS_ENGINE_URL": engine.url}
    with open_groups() as groups:
        yield groups.start(shards=2, env=env)


def test_patches_of_rows_join_into_those_of_the_sample(
    incremental: RunningGroup, tokenizer: Tokenizer
):
    talk = open_talk(incremental.url, tokenizer)
    for number in range(4):
        talk.say(user(f"turn {number}"), forced=f"{EMPTY}answer {number}{END}")
    records = talk.records()
    starts = [record["request"].get("routed_experts_prompt_start", 0) for record in records]
    ends = [len(prompt_in(record)) + len(sampled_in(record)) - 1 for record in records]
    assert starts == [0, *ends[:-1]]
    patches = [experts_in(record) for record in records]
    assert [len(patch) for patch in patches] == np.subtract(ends, starts).tolist()
    (sample,) = talk.samples().samples
    assert sample.rollout_routed_experts is not None
    assert sample.rollout_routed_experts.shape == (len(sample.tokens) - 1, LAYERS, TOPK)
    assert sample.rollout_routed_experts.tolist() == np.concatenate(patches).tolist()
