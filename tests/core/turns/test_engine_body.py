import json
from array import array

import pytest

from sessions.core.dialects.choice import DIALECTS
from sessions.core.dialects.dialect import EngineDialect, ReplayWish
from sessions.core.forms.chat_request import ChatRequest, parse_chat_request
from sessions.core.texts.json_text import JsonObject
from sessions.core.texts.shared_text import IdsText
from sessions.core.turns.engine_body import EngineBody, engine_body_of
from sessions.errors.client_visible import RequestError

USER = {"role": "user", "content": "hi"}
PROMPT = IdsText().followed(array("I", [5, 6]), 0)


@pytest.fixture(params=list(DIALECTS))
def dialect(request: pytest.FixtureRequest) -> EngineDialect:
    return DIALECTS[request.param]()


def parse(**fields: object) -> ChatRequest:
    return parse_chat_request(json.dumps({"messages": [USER], **fields}).encode())


def body_of(request: ChatRequest, dialect: EngineDialect, **kwargs: object) -> EngineBody:
    return engine_body_of(
        request, dialect, prompt=PROMPT, template_kwargs=kwargs, replay=ReplayWish()
    )


def engine_body(request: ChatRequest, dialect: EngineDialect, **kwargs: object) -> JsonObject:
    parsed: JsonObject = json.loads(body_of(request, dialect, **kwargs).whole())
    return parsed


def test_what_asks_for_a_stream_is_not_passed_on(dialect: EngineDialect):
    body = engine_body(parse(stream=True, stream_options={"include_usage": True}), dialect)
    assert not {"stream", "stream_options"} & set(body)


def test_fields_pass_in_their_order(dialect: EngineDialect):
    request = parse(model="m", logprobs=False, temperature=0.5, unknown={"a": [1]})
    body = engine_body(request, dialect, enable_thinking=False)
    assert list(body)[:5] == ["messages", "model", "logprobs", "temperature", "unknown"]
    assert body["unknown"] == {"a": [1]}
    assert body["logprobs"] is True
    assert body["chat_template_kwargs"] == {"enable_thinking": False}


def test_the_ids_stand_in_the_body_where_the_dialect_puts_them():
    sglang, vllm = (engine_body(parse(), DIALECTS[name]()) for name in ("sglang", "vllm"))
    assert sglang["input_ids"] == [5, 6]
    assert vllm["kv_transfer_params"] == {"prompt_token_ids": [5, 6]}


def test_empty_template_kwargs_are_left_out(dialect: EngineDialect):
    assert "chat_template_kwargs" not in engine_body(parse(chat_template_kwargs={}), dialect)


@pytest.mark.parametrize("tools", [None, []])
@pytest.mark.parametrize("choice", [None, "none", "auto"])
def test_what_says_nothing_without_tools_does_not_reach_the_engine(
    dialect: EngineDialect, tools: object, choice: object
):
    body = engine_body(parse(tools=tools, tool_choice=choice, parallel_tool_calls=True), dialect)
    assert not {"tools", "tool_choice", "parallel_tool_calls"} & set(body)


def test_a_choice_of_a_tool_without_tools_is_the_engines_to_refuse(dialect: EngineDialect):
    assert engine_body(parse(tool_choice="required"), dialect)["tool_choice"] == "required"


def test_tools_and_their_choice_pass(dialect: EngineDialect):
    tools = [{"type": "function", "function": {"name": "f"}}]
    request = parse(tools=tools, tool_choice="auto", parallel_tool_calls=False)
    body = engine_body(request, dialect)
    assert request.tools == tools
    assert (body["tools"], body["tool_choice"], body["parallel_tool_calls"]) == (
        tools,
        "auto",
        False,
    )


def test_null_content_becomes_empty_text_except_for_the_assistant(dialect: EngineDialect):
    messages = [{"role": "user", "content": None}, {"role": "assistant", "content": None}, USER]
    body = engine_body(parse(messages=messages), dialect)
    assert [message["content"] for message in body["messages"]] == ["", None, "hi"]


def test_a_lone_surrogate_reaches_the_engine_escaped(dialect: EngineDialect):
    request = parse_chat_request(b'{"messages":[{"role":"user","content":"\\ud83d"}]}')
    body = body_of(request, dialect)
    assert b"\\ud83d" in body.whole()


def test_a_body_too_deep_to_be_written_again_is_a_400(dialect: EngineDialect):
    deep = b"[" * 1000 + b"]" * 1000
    request = parse_chat_request(b'{"messages":[{"role":"user"}],"x":' + deep + b"}")
    with pytest.raises(RequestError, match="nested too deeply"):
        body_of(request, dialect)
