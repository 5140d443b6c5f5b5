"""Chat bodies: what an SGLang server refuses is refused, what it ignores is ignored."""

import json

import pytest

from sessions.errors.unseen import SimRefusalError
from sessions.sim.body import parse_body

MESSAGES = [{"role": "user", "content": "hello"}]


def parse(**fields: object):
    return parse_body(json.dumps({"messages": MESSAGES, **fields}).encode(), 1000)


@pytest.mark.parametrize(
    "raw",
    [
        b"",
        b"{",
        b"[]",
        b"null",
        b"{}",
        b'{"messages": "hi"}',
        b'{"messages": ["hi"]}',
        b'{"messages": null}',
        b"\xff\xfe",
        b'{"messages": [], "model": "\\ud800"}',  # it is echoed, and no UTF-8 holds it
    ],
)
def test_what_is_no_chat_is_a_400_with_the_type_of_a_validation(raw: bytes):
    with pytest.raises(SimRefusalError) as caught:
        parse_body(raw, 1000)
    assert (caught.value.status, caught.value.type) == (400, "Bad Request")


@pytest.mark.parametrize(
    "ids",
    [[], [True], [1.0], [1.5], ["1"], [None], [-1], [1000], [1 << 70], "12", [[1]]],
)
def test_ids_that_are_no_plain_ids_of_the_vocabulary_are_refused(ids: object):
    with pytest.raises(SimRefusalError, match=r"input_ids|token id"):
        parse(input_ids=ids)


def test_ids_below_the_vocabulary_pass():
    assert parse(input_ids=[0, 999])[1].input_ids == [0, 999]


def test_scripted_ids_are_checked_too():
    with pytest.raises(SimRefusalError, match="1000"):
        parse(sim={"token_ids": [1000]})


@pytest.mark.parametrize(
    "field", ["return_meta_info", "return_token_ids", "return_prompt_token_ids"]
)
def test_metadata_is_refused_with_stream(field: str):
    with pytest.raises(SimRefusalError, match=field):
        parse(stream=True, **{field: True})
    parse(stream=False, **{field: True})


@pytest.mark.parametrize(
    "fields",
    [
        {"n": 0},
        {"n": 129},
        {"max_tokens": -1},
        {"max_tokens": "5"},
        {"stop": 5},
        {"tools": {}},
        {"routed_experts_start_len": -1},
        {"logprobs": "yes"},
    ],
)
def test_fields_of_a_wrong_type_or_range_are_refused(fields: dict[str, object]):
    with pytest.raises(SimRefusalError):
        parse(**fields)


def test_unknown_fields_and_nulls_pass():
    document, body = parse(
        temperature=0.7, whatever={"a": 1}, stop=None, tools=None, stream=None, n=None, seed=None
    )
    assert document["whatever"] == {"a": 1}
    assert body.stops == []
    assert not body.may_call


def test_what_only_pythons_parser_takes_passes():
    raw = b'{"messages": [{"role": "user", "content": "\\ud83d"}], "temperature": NaN}'
    assert parse_body(raw, 1000)[0]["messages"][0]["content"] == "\ud83d"


def test_the_newer_name_of_the_limit_wins():
    assert parse(max_tokens=5)[1].completion_limit == 5
    assert parse(max_tokens=5, max_completion_tokens=3)[1].completion_limit == 3
    assert parse()[1].completion_limit is None


def test_stop_may_be_one_text_or_several():
    assert parse(stop="a")[1].stops == ["a"]
    assert parse(stop=["a", "", "b"])[1].stops == ["a", "b"]


def test_calls_need_tools_and_no_refusal_of_them():
    assert parse(tools=[{}])[1].may_call
    assert not parse(tools=[{}], tool_choice="none")[1].may_call
    assert not parse(tools=[])[1].may_call


def test_thinking_can_be_switched_off():
    assert parse()[1].may_think
    assert not parse(chat_template_kwargs={"enable_thinking": False})[1].may_think
