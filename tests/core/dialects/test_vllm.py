import json
from array import array
from typing import Any

import pytest

from sessions.core.dialects.dialect import ReplayWish
from sessions.core.dialects.vllm import VLLMDialect
from sessions.core.engine_replies.sampled import Sampled
from sessions.core.texts.json_text import JsonObject
from sessions.errors.engine import EngineReplyUnusableError
from tests.support.dialects import vllm_document

PROMPT = [1, 2, 3]


def document(ids: list[int], **parts: Any) -> dict[str, Any]:  # noqa: ANN401 - JSON
    return vllm_document(ids, prompt=PROMPT, **parts)


def read(reply: object) -> Sampled:
    text = json.dumps(reply).encode()
    return VLLMDialect().read(json.loads(text), text, array("I", PROMPT))


def refusal_of(reply: object) -> str:
    with pytest.raises(EngineReplyUnusableError) as caught:
        read(reply)
    return caught.value.message


def test_what_would_change_the_ids_is_taken_out_and_other_transfer_parameters_stay():
    body: JsonObject = {
        "echo": True,
        "truncate_prompt_tokens": 5,
        "kv_transfer_params": {"remote": 1, "prompt_token_ids": [9]},
    }
    VLLMDialect().put(body, [5, 6], ReplayWish(is_wanted=True))
    assert body == {
        "kv_transfer_params": {"remote": 1, "prompt_token_ids": [5, 6]},
        "logprobs": True,
        "return_token_ids": True,
    }


@pytest.mark.parametrize("params", [None, "x", [], 7])
def test_transfer_parameters_that_are_no_object_are_replaced(params: object):
    body: JsonObject = {"kv_transfer_params": params}
    VLLMDialect().put(body, [5], ReplayWish())
    assert body["kv_transfer_params"] == {"prompt_token_ids": [5]}


@pytest.mark.parametrize("found", [None, "x", {}, 7])
def test_a_reply_without_token_ids_is_refused_by_name(found: object):
    reply = document([7])
    reply["choices"][0]["token_ids"] = found
    assert "choices[0].token_ids" in refusal_of(reply)


@pytest.mark.parametrize("token_id", [None, "7", 7.0, True, -1, 1 << 32])
def test_an_id_that_is_none_is_refused(token_id: object):
    reply = document([7])
    reply["choices"][0]["token_ids"] = [token_id]
    assert "is no token id" in refusal_of(reply)


@pytest.mark.parametrize("count", [0, 1, 3])
def test_log_probabilities_that_are_not_one_per_id_are_refused(count: int):
    reply = document([7, 8])
    reply["choices"][0]["logprobs"]["content"] = [{"logprob": -1.0}] * count
    assert f"{count} log probabilities and the ids of 2" in refusal_of(reply)


@pytest.mark.parametrize("content", [7, "x", [7], [None]])
def test_log_probabilities_in_no_known_form_are_refused(content: object):
    reply = document([7])
    reply["choices"][0]["logprobs"]["content"] = content
    assert "logprobs.content" in refusal_of(reply)


@pytest.mark.parametrize("logprobs", [None, {}, {"content": None}])
def test_a_reply_without_tokens_may_lack_log_probabilities(logprobs: object):
    reply = document([], finish_reason="abort")
    reply["choices"][0]["logprobs"] = logprobs
    assert len(read(reply).log_probs) == 0


def test_a_reply_that_counts_nothing_is_refused():
    reply = document([7])
    del reply["usage"]
    assert "does not say completion_tokens" in refusal_of(reply)


def test_cached_tokens_are_read_where_they_are_told():
    reply = document([7])
    reply["usage"]["prompt_tokens_details"] = {"cached_tokens": 2}
    assert read(reply).cached_count == 2


def test_only_its_own_switch_asks_for_the_prompt_ids():
    assert VLLMDialect().wants_prompt_ids({"return_token_ids": True})
    assert not VLLMDialect().wants_prompt_ids({"return_prompt_token_ids": True})
