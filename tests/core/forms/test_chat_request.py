import json

import pytest

from sessions.core.forms.chat_request import ChatRequest, parse_chat_request
from sessions.core.texts.json_text import JsonObject
from sessions.errors.client_visible import RequestError

USER = {"role": "user", "content": "hi"}


def parse(**fields: object) -> ChatRequest:
    return parse_chat_request(json.dumps({"messages": [USER], **fields}).encode())


def test_what_asks_for_a_stream_is_read():
    request = parse(stream=True, stream_options={"include_usage": True})
    assert request.wants_stream
    assert request.wants_usage


@pytest.mark.parametrize(
    "body",
    [b"", b"[]", b'"x"', b"null", b"7", b"{", b"\xff", b"\xef\xbb\xbf{}", b"[" * 9999],
)
def test_a_body_that_is_no_json_object_is_a_400(body: bytes):
    with pytest.raises(RequestError) as caught:
        parse_chat_request(body)
    assert caught.value.status == 400


@pytest.mark.parametrize(
    ("fields", "param"),
    [
        ({"messages": None}, "messages"),
        ({"messages": []}, "messages"),
        ({"messages": "hi"}, "messages"),
        ({"messages": [USER, "hi"]}, "messages[1]"),
        ({"n": 2}, "n"),
        ({"n": 0}, "n"),
        ({"n": True}, "n"),
        ({"tools": "x"}, "tools"),
        ({"tools": [1]}, "tools"),
        ({"stream": "true"}, "stream"),
        ({"stream": 1}, "stream"),
        ({"stream_options": []}, "stream_options"),
        ({"chat_template_kwargs": [1]}, "chat_template_kwargs"),
    ],
)
def test_a_field_that_is_not_what_it_must_be_is_named(fields: JsonObject, param: str):
    with pytest.raises(RequestError) as caught:
        parse(**fields)
    assert caught.value.param == param
    assert param.partition("[")[0] in caught.value.message


@pytest.mark.parametrize(
    "fields", [{}, {"stream": False}, {"stream": None, "stream_options": None}]
)
def test_without_asking_there_is_no_stream(fields: JsonObject):
    request = parse(**fields)
    assert not request.wants_stream
    assert not request.wants_usage


def test_what_the_client_itself_asked_for_is_known():
    request = parse(return_prompt_token_ids=True, logprobs=None)
    assert request.asks("return_prompt_token_ids")
    assert not request.asks("logprobs")


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("input_ids", [1, 2]),
        ("input_ids", []),
        ("routed_experts_start_len", 0),
        ("routed_experts_prompt_start", 3),
        ("logprob_start_len", -1),
        ("lora_path", "mine"),
    ],
)
def test_what_would_change_the_prompt_or_the_record_is_refused_by_name(field: str, value: object):
    with pytest.raises(RequestError) as caught:
        parse(**{field: value})
    assert (caught.value.status, caught.value.param) == (400, field)
    assert parse(**{field: None}).messages == [USER]


def test_a_prompt_of_the_clients_own_is_refused_where_vllm_takes_it():
    with pytest.raises(RequestError) as caught:
        parse(kv_transfer_params={"prompt_token_ids": [1]})
    assert caught.value.param == "kv_transfer_params.prompt_token_ids"
    for other in (None, {}, {"remote": 1}, {"prompt_token_ids": None}, "x"):
        assert parse(kv_transfer_params=other).messages == [USER]
