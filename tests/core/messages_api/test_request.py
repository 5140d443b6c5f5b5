import json
from typing import Any

import pytest

from sessions.core.forms.chat_request import ChatRequest
from sessions.core.messages_api.request import parse_messages_request
from sessions.core.texts.json_text import Json
from sessions.errors.client_visible import RequestError
from sessions.errors.turns import UnsupportedContentError

HI = {"role": "user", "content": "hi"}
SCHEMA = {"type": "object", "properties": {"city": {"type": "string"}}}
TOOL = {"name": "weather", "description": "of a city", "input_schema": SCHEMA}


def parsed(*, is_counted: bool = False, **fields: Any) -> ChatRequest:  # noqa: ANN401 - JSON
    body = {"model": "m", "max_tokens": 9, "messages": [HI], **fields}
    return parse_messages_request(json.dumps(body).encode(), is_counted=is_counted)


def extra(**fields: Any) -> dict[str, Any]:  # noqa: ANN401 - JSON
    """What these fields become."""
    body = parsed(**fields).body
    return {k: v for k, v in body.items() if k not in ("model", "max_tokens", "messages")}


def refusal(**fields: Any) -> RequestError:  # noqa: ANN401 - JSON
    with pytest.raises(RequestError) as raised:
        parsed(**fields)
    return raised.value


def test_what_both_apis_have_passes_in_its_order():
    fields: dict[str, Any] = {"temperature": 0.5, "top_p": 0.9, "top_k": 5, "stream": True}
    request = parsed(**fields)
    assert list(request.body) == ["model", "max_tokens", "messages", *fields]
    assert extra(**fields) == fields
    assert request.wants_stream
    assert request.messages == [HI]


def test_the_system_prompt_goes_before_the_messages():
    assert parsed(system="be kind").messages == [{"role": "system", "content": "be kind"}, HI]


@pytest.mark.parametrize(
    "field",
    [
        {"metadata": {"user_id": "x"}},
        {"cache_control": {"type": "ephemeral"}},
        {"service_tier": "auto"},
        {"context_management": {"edits": []}},
        {"output_config": {"effort": "high"}},
        {"thinking": {"type": "adaptive"}},
        {"thinking": {"type": "between_tools"}},
        {"stop_sequences": []},
        {"stop_sequences": None, "tools": None, "tool_choice": None, "temperature": None},
        {"container": None, "mcp_servers": []},
    ],
)
def test_what_changes_nothing_is_left_out(field: dict[str, Json]):
    assert extra(**field) == {}


@pytest.mark.parametrize("kind", [{}, {"type": "custom"}, {"cache_control": {"type": "ephemeral"}}])
def test_tools_are_functions(kind: dict[str, Json]):
    function = {"name": "weather", "description": "of a city", "parameters": SCHEMA}
    told = parsed(tools=[{**TOOL, **kind}]).tools
    assert told == [{"type": "function", "function": function}]


def test_a_tool_needs_no_description():
    (tool,) = parsed(tools=[{"name": "f", "input_schema": {}}]).tools or []
    assert tool["function"] == {"name": "f", "parameters": {}}


def test_no_tools_are_none():
    assert parsed(tools=[]).tools is None


@pytest.mark.parametrize(
    ("choice", "told"),
    [
        ({"type": "auto"}, {"tool_choice": "auto"}),
        ({"type": "any"}, {"tool_choice": "required"}),
        ({"type": "none"}, {"tool_choice": "none"}),
        (
            {"type": "tool", "name": "f"},
            {"tool_choice": {"type": "function", "function": {"name": "f"}}},
        ),
        (
            {"type": "auto", "disable_parallel_tool_use": True},
            {"tool_choice": "auto", "parallel_tool_calls": False},
        ),
        ({"type": "any", "disable_parallel_tool_use": False}, {"tool_choice": "required"}),
    ],
)
def test_choices_of_tools_have_other_names(choice: Json, told: Json):
    assert extra(tool_choice=choice) == told


def test_stop_sequences_are_stops():
    assert extra(stop_sequences=["a", "b"]) == {"stop": ["a", "b"]}


@pytest.mark.parametrize(("kind", "is_on"), [("enabled", True), ("disabled", False)])
def test_thinking_is_switched_by_the_names_that_templates_have(kind: str, *, is_on: bool):
    request = parsed(thinking={"type": kind, "budget_tokens": 1024})
    assert request.template_kwargs == {"enable_thinking": is_on, "thinking": is_on}
    assert "thinking" not in request.body


def test_the_clients_own_switch_of_thinking_counts():
    own = {"thinking_mode": "chat"}
    request = parsed(thinking={"type": "enabled"}, chat_template_kwargs=own)
    assert request.template_kwargs == own
    others = parsed(thinking={"type": "disabled"}, chat_template_kwargs={"x": 1}).template_kwargs
    assert others == {"x": 1, "enable_thinking": False, "thinking": False}


def test_fields_of_the_engine_pass():
    assert extra(min_p=0.1, sim={"delay_s": 0}) == {"min_p": 0.1, "sim": {"delay_s": 0}}


@pytest.mark.parametrize(
    ("fields", "param"),
    [
        ({"messages": []}, "messages"),
        ({"messages": None}, "messages"),
        ({"system": 5}, "system"),
        ({"tools": {}}, "tools"),
        ({"tools": ["f"]}, "tools[0]"),
        ({"tools": [{"input_schema": {}}]}, "tools[0].name"),
        ({"tools": [TOOL, {"name": "f"}]}, "tools[1].input_schema"),
        ({"tool_choice": "auto"}, "tool_choice"),
        ({"tool_choice": {"type": "tool"}}, "tool_choice"),
        ({"tool_choice": {"type": ["auto"]}}, "tool_choice"),
        ({"stop_sequences": "x"}, "stop_sequences"),
        ({"stop_sequences": [1]}, "stop_sequences"),
        ({"thinking": True}, "thinking"),
        ({"thinking": {}}, "thinking"),
        ({"thinking": {"type": "enabled"}, "chat_template_kwargs": 1}, "chat_template_kwargs"),
        ({"output_config": 1}, "output_config"),
        ({"output_config": {"format": {"type": "json_schema"}}}, "output_config.format"),
        ({"output_format": {"type": "json_schema"}}, "output_format"),
        ({"container": "c"}, "container"),
        ({"mcp_servers": [{}]}, "mcp_servers"),
        ({"stream": 1}, "stream"),
        ({"n": 2}, "n"),
        ({"input_ids": [1]}, "input_ids"),
    ],
)
def test_what_cannot_be_had_is_refused_with_its_name(fields: dict[str, Json], param: str):
    assert refusal(**fields).param == param


def test_a_tool_of_the_service_is_refused():
    error = refusal(tools=[{"type": "web_search_20250305", "name": "web_search"}])
    assert isinstance(error, UnsupportedContentError)
    assert error.param == "tools[0].type"


def test_a_reply_cannot_be_begun_for_the_model():
    begun = [HI, {"role": "assistant", "content": "The"}]
    assert refusal(messages=begun).param == "messages[1]"
    assert parsed(messages=begun, is_counted=True).messages == begun


@pytest.mark.parametrize("raw", [b"", b"[]", b"{", b"null", b"{}"])
def test_what_is_no_request_is_refused(raw: bytes):
    with pytest.raises(RequestError):
        parse_messages_request(raw)


def nested(depth: int) -> bytes:
    """A request whose input of a tool is so deep."""
    deep = b'{"a":' * depth + b"1" + b"}" * depth
    use = b'{"type":"tool_use","id":"c","name":"f","input":' + deep + b"}"
    assistant = b'{"role":"assistant","content":[' + use + b"]}"
    return b'{"messages":[' + assistant + b',{"role":"user","content":"x"}]}'


# What can be parsed may still be too deep to be written.
@pytest.mark.parametrize("depth", [1010, 5000])
def test_what_is_nested_too_deeply_is_refused(depth: int):
    with pytest.raises(RequestError, match="nested too deeply"):
        parse_messages_request(nested(depth))


def test_what_is_nested_deeply_is_not():
    assert parse_messages_request(nested(300)).messages[0]["tool_calls"]
