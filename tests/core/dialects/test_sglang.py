import json
from array import array
from typing import Any

import pytest

from sessions.core.dialects.dialect import ReplayWish
from sessions.core.dialects.sglang import SGLangDialect
from sessions.core.engine_replies.sampled import Sampled
from sessions.core.texts.json_text import JsonObject
from sessions.errors.engine import EngineReplyUnusableError
from tests.support.dialects import document_of

PROMPT = [1, 2, 3]


def document(ids: list[int], **parts: Any) -> dict[str, Any]:  # noqa: ANN401 - JSON
    return document_of("sglang", ids, prompt=PROMPT, **parts)


def read(reply: object) -> Sampled:
    text = json.dumps(reply).encode()
    return SGLangDialect().read(json.loads(text), text, array("I", PROMPT))


def refusal_of(reply: object) -> str:
    with pytest.raises(EngineReplyUnusableError) as caught:
        read(reply)
    return caught.value.message


def test_the_fields_that_token_exactness_needs_are_forced():
    body: JsonObject = {"no_stop_trim": True, "input_ids": [9]}
    SGLangDialect().put(body, [5, 6], ReplayWish(is_wanted=True))
    assert body == {
        "no_stop_trim": False,
        "input_ids": [5, 6],
        "logprobs": True,
        "return_meta_info": True,
        "return_prompt_token_ids": True,
        "return_routed_experts": True,
    }


@pytest.mark.parametrize("meta", [None, {}, {"output_token_logprobs": None}, [], "x"])
def test_a_reply_without_token_ids_is_refused_by_name(meta: object):
    reply = document([7])
    reply["choices"][0]["meta_info"] = meta
    assert "meta_info.output_token_logprobs" in refusal_of(reply)


@pytest.mark.parametrize(
    "entry", [None, 7, [], [0.5], [0.5, "7"], [0.5, 7.0], [0.5, True], [0.5, -1], [0.5, 1 << 32]]
)
def test_an_entry_that_names_no_token_is_refused(entry: object):
    reply = document([7])
    reply["choices"][0]["meta_info"]["output_token_logprobs"] = [entry]
    refusal_of(reply)


def test_a_count_that_differs_from_the_ids_is_refused():
    reply = document([7, 8])
    reply["choices"][0]["meta_info"]["completion_tokens"] = 3
    assert "3 completion tokens and returned the ids of 2" in refusal_of(reply)


def test_a_reply_that_counts_nothing_is_refused():
    reply = document([7, 8])
    del reply["choices"][0]["meta_info"]["completion_tokens"], reply["usage"]
    assert "does not say completion_tokens" in refusal_of(reply)


@pytest.mark.parametrize("count", ["meta_info", "usage"])
def test_one_count_is_enough(count: str):
    reply = document([7, 8])
    if count == "meta_info":
        del reply["usage"]
    else:
        del reply["choices"][0]["meta_info"]["completion_tokens"]
    assert len(read(reply).token_ids) == 2


@pytest.mark.parametrize(
    ("place", "extension"),
    [("response_token_ids", None), ("output_ids", [7, 8]), ("output_ids", [[7, 8]])],
)
def test_newer_fields_do_without_meta_info(place: str, extension: object):
    reply = document([7, 8])
    del reply["choices"][0]["meta_info"]
    if extension is None:
        reply["choices"][0]["response_token_ids"] = [7, 8]
    else:
        reply["sglext"] = {place: extension}
    sampled = read(reply)
    assert sampled.token_ids.tolist() == [7, 8]
    assert sampled.log_probs.tolist() == [-0.5, -0.5]


def test_newer_fields_without_a_log_probability_for_each_id_are_refused():
    reply = document([7, 8])
    del reply["choices"][0]["meta_info"]
    reply["choices"][0] |= {"response_token_ids": [7, 8], "logprobs": None}
    assert "0 log probabilities and the ids of 2" in refusal_of(reply)


@pytest.mark.parametrize("place", ["response_token_ids", "output_ids"])
@pytest.mark.parametrize("others", [[7], [7, 9]])
def test_ids_that_differ_between_places_are_refused(place: str, others: list[int]):
    reply = document([7, 8])
    if place == "output_ids":
        reply["sglext"] = {place: others}
    else:
        reply["choices"][0][place] = others
    assert "contradicts itself" in refusal_of(reply)


def test_the_prompt_in_sglext_is_an_echo_too():
    reply = document_of("sglang", [7])
    reply["sglext"] = {"input_ids": PROMPT}
    assert read(reply).token_ids.tolist() == [7]
    reply["sglext"] = {"input_ids": [1]}
    assert "sglext.input_ids has 1 ids" in refusal_of(reply)


def test_everything_else_that_the_engine_tells_is_kept():
    reply = document([7], finish_reason="length")
    reply["choices"][0]["meta_info"] |= {
        "weight_version": "v7",
        "cached_tokens": 2,
        "prompt_tokens": 3,
        "e2e_latency": 0.25,
        "indexer_topk_num_layers": 2,
    }
    sampled = read(reply)
    assert (sampled.finish_reason, sampled.weight_version) == ("length", "v7")
    assert (sampled.cached_count, sampled.prompt_count, sampled.latency_s) == (2, 3, 0.25)
    assert dict(sampled.row_layers) == {"indexer_topk": 2}


def test_only_its_own_switch_asks_for_the_prompt_ids():
    assert SGLangDialect().wants_prompt_ids({"return_prompt_token_ids": True})
    assert not SGLangDialect().wants_prompt_ids({"return_token_ids": True})
