"""Answers as values: what is read, and what of a broken reply is said."""

from __future__ import annotations

import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sessions.client.answers import (
    Answer,
    error_of,
    parse_nothing,
    parse_records,
    parse_session,
    prompt_ids,
    sampled_ids,
)
from sessions.client.errors import StatusError, UnusableReplyError
from sessions.errors.client_visible import ClientVisibleError, RequestError
from sessions.errors.group import GroupDyingError, OverloadedError


def answer(body: object, status: int = 200, headers: dict[str, str] | None = None) -> Answer:
    raw = body if isinstance(body, bytes) else json.dumps(body).encode()
    return Answer(status=status, headers=headers or {}, body=raw)


@pytest.mark.parametrize(
    "error",
    [RequestError("no", param="n"), GroupDyingError("shard 1 died"), OverloadedError("full")],
)
def test_an_error_of_the_server_is_read_back_whole(error: ClientVisibleError):
    told = error_of(answer(error.body, error.status, dict(error.headers)))
    details = told.details
    assert (details.status, details.message, details.type, details.code, details.param) == (
        (error.status, error.message, error.type, error.code, error.param)
    )
    assert details.should_retry is error.should_retry
    assert details.retry_after_s == error.retry_after_s


ODD_BODIES = [b"", b"\xff\xfe", b"[]", b"null", b'{"error": "text"}', b'{"error": {"message": 3}}']


@pytest.mark.parametrize("body", ODD_BODIES)
def test_an_error_without_our_shape_still_says_something(body: bytes):
    told = error_of(answer(body, 500, {"retry-after": "Wed, 21 Oct", "x-should-retry": "maybe"}))
    assert told.details.message
    assert "\n" not in str(told)
    assert told.details.should_retry is None
    assert told.details.retry_after_s is None


def test_every_status_but_a_2xx_is_an_error():
    for status in range(200, 600):
        if 200 <= status < 300:
            parse_nothing(answer(b"", status))
        else:
            with pytest.raises(StatusError):
                parse_nothing(answer(b"", status))


def test_records_with_escaped_lone_surrogates_are_read():
    body = b'{"session_id":"a","records":[{"text":"\\ud800"}],"metadata":{}}'
    assert parse_records(answer(body)).records == [{"text": "\ud800"}]


RECORDS = {"session_id": "a", "records": [{}], "metadata": {}}


@pytest.mark.parametrize("field", RECORDS)
@pytest.mark.parametrize("wrong", [None, 3, "x", [1]])
def test_records_of_another_form_are_refused(field: str, wrong: object):
    if field == "session_id" and wrong == "x":
        return  # a session may be called so
    with pytest.raises(UnusableReplyError):
        parse_records(answer(RECORDS | {field: wrong}))


@settings(derandomize=True, deadline=None, max_examples=100)
@given(body=st.binary(max_size=60), status=st.sampled_from([200, 204, 404, 503]))
def test_no_body_makes_a_parser_raise_anything_else(body: bytes, status: int):
    for parse in (parse_session, parse_records):
        with pytest.raises((StatusError, UnusableReplyError)):
            parse(answer(body, status))


def test_token_ids_are_found_in_a_record():
    tokens = [[-0.1, 7, None], [-0.2, 8, "x"]]
    record = {
        "request": {"input_ids": [1, 2]},
        "response": {"choices": [{"meta_info": {"output_token_logprobs": tokens}}]},
    }
    assert prompt_ids(record) == [1, 2]
    assert sampled_ids(record) == [7, 8]


def test_token_ids_are_found_where_vllm_has_them():
    record = {
        "request": {"kv_transfer_params": {"prompt_token_ids": [1, 2]}},
        "response": {"choices": [{"token_ids": [7, 8]}]},
    }
    assert prompt_ids(record) == [1, 2]
    assert sampled_ids(record) == [7, 8]


@pytest.mark.parametrize(
    "record",
    [
        {},
        {"request": None, "response": {"choices": []}},
        {
            "request": {"kv_transfer_params": None},
            "response": {"choices": [{"token_ids": None}]},
        },
    ],
)
def test_a_record_without_token_ids_is_refused_by_name(record: dict[str, object]):
    with pytest.raises(UnusableReplyError, match="prompt ids"):
        prompt_ids(record)
    with pytest.raises(UnusableReplyError, match="sampled ids"):
        sampled_ids(record)
