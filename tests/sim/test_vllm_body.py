"""Bodies as vLLM reads them."""

import json

import pytest

from sessions.errors.unseen import SimRefusalError
from sessions.sim.body import ChatBody
from sessions.sim.vllm_body import parse_vllm_body

VOCAB = 100
HELLO = [{"role": "user", "content": "hello"}]


def parse(**fields: object) -> ChatBody:
    return parse_vllm_body(json.dumps({"messages": HELLO, **fields}).encode(), VOCAB)[1]


def refusal_of(**fields: object) -> SimRefusalError:
    with pytest.raises(SimRefusalError) as caught:
        parse(**fields)
    return caught.value


def test_vllms_fields_are_read():
    body = parse(
        kv_transfer_params={"prompt_token_ids": [1, 2]},
        return_token_ids=True,
        routed_experts_prompt_start=1,
        include_stop_str_in_output=True,
        vllm_xargs={"force_ids": [7]},
    )
    assert body.input_ids == [1, 2]
    assert body.return_token_ids
    assert body.return_prompt_token_ids
    assert body.routed_experts_start_len == 1
    assert body.no_stop_trim
    assert body.script.force_ids == [7]
    assert body.return_routed_experts


def test_sglangs_fields_mean_nothing():
    body = parse(
        input_ids=[1],
        return_meta_info=True,
        return_prompt_token_ids=True,
        routed_experts_start_len=5,
        no_stop_trim=True,
    )
    assert (body.input_ids, body.return_meta_info, body.no_stop_trim) == (None, None, None)
    assert (body.return_prompt_token_ids, body.routed_experts_start_len) == (None, None)


def test_a_stream_has_no_experts_and_may_have_ids():
    body = parse(stream=True, return_token_ids=True)
    assert not body.return_routed_experts
    assert body.return_token_ids


@pytest.mark.parametrize("transfer", [None, {}, {"prompt_token_ids": []}, {"other": 1}])
def test_without_ids_the_messages_are_rendered(transfer: object):
    assert parse(kv_transfer_params=transfer).input_ids is None


@pytest.mark.parametrize("ids", ["x", [1.5], ["1"], [True], {"a": 1}])
def test_ids_that_are_no_numbers_break_the_request(ids: object):
    error = refusal_of(kv_transfer_params={"prompt_token_ids": ids})
    assert (error.status, error.type) == (500, "InternalServerError")


def test_transfer_parameters_must_be_an_object():
    error = refusal_of(kv_transfer_params="x")
    assert (error.status, error.param) == (400, "body.kv_transfer_params")


@pytest.mark.parametrize("token_id", [-1, VOCAB])
def test_ids_out_of_the_vocabulary_are_refused(token_id: int):
    error = refusal_of(kv_transfer_params={"prompt_token_ids": [token_id]})
    assert (error.status, error.message) == (400, f"Token id {token_id} is out of vocabulary")


def test_forced_ids_join_a_script():
    body = parse(sim={"delay_s": 1}, vllm_xargs={"force_ids": [5]})
    assert (body.script.delay_s, body.script.force_ids) == (1, [5])


@pytest.mark.parametrize("raw", [b"", b"[]", b"7", b"{}", b"{"])
def test_what_is_no_chat_is_a_400_with_the_type_of_a_validation(raw: bytes):
    with pytest.raises(SimRefusalError) as caught:
        parse_vllm_body(raw, VOCAB)
    assert (caught.value.status, caught.value.type) == (400, "Bad Request")
