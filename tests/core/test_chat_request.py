import json
from array import array

import pytest

from sessions.core.chat_request import ChatRequest, engine_body_of, parse_chat_request
from sessions.core.json_text import JsonObject
from sessions.core.shared_text import IdsText
from sessions.errors import RequestError

USER = {"role": "user", "content": "hi"}


def parse(**fields: object) -> ChatRequest:
    return parse_chat_request(json.dumps({"messages": [USER], **fields}).encode())


def engine_body(request: ChatRequest, *, replay: bool = False, **kwargs: object) -> JsonObject:
    ids = IdsText().followed(array("I", [5, 6]), 0)
    body = engine_body_of(request, input_ids=ids, template_kwargs=kwargs, routing_replay=replay)
    parsed: JsonObject = json.loads(body.whole())
    return parsed


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


def test_what_asks_for_a_stream_is_read_and_not_passed_on():
    request = parse(stream=True, stream_options={"include_usage": True})
    assert request.wants_stream
    assert request.wants_usage
    body = engine_body(request)
    assert "stream" not in body
    assert "stream_options" not in body


@pytest.mark.parametrize(
    "fields", [{}, {"stream": False}, {"stream": None, "stream_options": None}]
)
def test_without_asking_there_is_no_stream(fields: JsonObject):
    request = parse(**fields)
    assert not request.wants_stream
    assert not request.wants_usage


def test_fields_pass_in_their_order_and_forced_ones_are_set():
    request = parse(model="m", logprobs=False, temperature=0.5, unknown={"a": [1]}, input_ids=[9])
    body = engine_body(request, enable_thinking=False)
    assert list(body)[:6] == [
        "messages",
        "model",
        "logprobs",
        "temperature",
        "unknown",
        "input_ids",
    ]
    assert body["unknown"] == {"a": [1]}
    assert body["logprobs"] is True
    assert body["return_meta_info"] is True
    assert body["no_stop_trim"] is False
    assert body["return_prompt_token_ids"] is True
    assert body["input_ids"] == [5, 6]
    assert body["chat_template_kwargs"] == {"enable_thinking": False}
    assert "return_routed_experts" not in body


def test_routed_experts_are_asked_for_when_the_setting_says_so():
    assert engine_body(parse(), replay=True)["return_routed_experts"] is True


def test_the_clients_own_wish_for_routed_experts_passes():
    assert engine_body(parse(return_routed_experts=True))["return_routed_experts"] is True


def test_empty_template_kwargs_are_left_out():
    assert "chat_template_kwargs" not in engine_body(parse(chat_template_kwargs={}))


@pytest.mark.parametrize("tools", [None, []])
@pytest.mark.parametrize("choice", [None, "none", "auto"])
def test_what_says_nothing_without_tools_does_not_reach_the_engine(tools: object, choice: object):
    body = engine_body(parse(tools=tools, tool_choice=choice, parallel_tool_calls=True))
    assert not {"tools", "tool_choice", "parallel_tool_calls"} & set(body)


def test_a_choice_of_a_tool_without_tools_is_the_engines_to_refuse():
    assert engine_body(parse(tool_choice="required"))["tool_choice"] == "required"


def test_tools_and_their_choice_pass():
    tools = [{"type": "function", "function": {"name": "f"}}]
    request = parse(tools=tools, tool_choice="auto", parallel_tool_calls=False)
    body = engine_body(request)
    assert request.tools == tools
    assert (body["tools"], body["tool_choice"], body["parallel_tool_calls"]) == (
        tools,
        "auto",
        False,
    )


def test_null_content_becomes_empty_text_except_for_the_assistant():
    messages = [{"role": "user", "content": None}, {"role": "assistant", "content": None}, USER]
    body = engine_body(parse(messages=messages))
    assert [message["content"] for message in body["messages"]] == ["", None, "hi"]


def test_a_lone_surrogate_reaches_the_engine_escaped():
    request = parse_chat_request(b'{"messages":[{"role":"user","content":"\\ud83d"}]}')
    body = engine_body_of(request, input_ids=IdsText(), template_kwargs={}, routing_replay=False)
    assert b"\\ud83d" in body.whole()


def test_a_body_too_deep_to_be_written_again_is_a_400():
    deep = b"[" * 1000 + b"]" * 1000
    request = parse_chat_request(b'{"messages":[{"role":"user"}],"x":' + deep + b"}")
    with pytest.raises(RequestError, match="nested too deeply"):
        engine_body_of(request, input_ids=IdsText(), template_kwargs={}, routing_replay=False)


def test_what_the_client_itself_asked_for_is_known():
    request = parse(return_prompt_token_ids=True, logprobs=None)
    assert request.asks("return_prompt_token_ids")
    assert not request.asks("logprobs")
