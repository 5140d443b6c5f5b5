from typing import Any

import pytest

from sessions.core.messages_api.content import messages_of
from sessions.core.texts.json_text import Json
from sessions.errors.client_visible import RequestError
from sessions.errors.turns import UnsupportedContentError

HI = {"role": "user", "content": "hi"}
CACHED = {"cache_control": {"type": "ephemeral"}}


def text(words: str, **more: Any) -> dict[str, Any]:  # noqa: ANN401 - JSON
    return {"type": "text", "text": words, **more}


def user_of(words: str) -> dict[str, str]:
    return {"role": "user", "content": words}


def said(*blocks: Json, role: str = "user") -> list[Any]:
    """The messages that one message becomes."""
    return messages_of(None, [{"role": role, "content": list(blocks)}])


def result(content: Json, **more: Any) -> dict[str, Any]:  # noqa: ANN401 - JSON
    return {"type": "tool_result", "tool_use_id": "c1", "content": content, **more}


@pytest.mark.parametrize(
    ("system", "told"),
    [
        ("be kind", "be kind"),
        ([text("be kind", **CACHED), text("be brief")], "be kind\nbe brief"),
    ],
)
def test_the_system_prompt_is_the_first_message(system: Json, told: str):
    assert messages_of(system, [HI]) == [{"role": "system", "content": told}, HI]


BILLING = "x-anthropic-billing-header: cc_version=2.1.100; cch=eb6c6;"


@pytest.mark.parametrize(
    ("system", "told"),
    [
        ([text(BILLING), text("be kind", **CACHED)], "be kind"),
        (f"{BILLING}\nbe kind", "be kind"),
        (f"be kind\n{BILLING}", f"be kind\n{BILLING}"),
    ],
)
def test_what_claude_code_makes_anew_for_each_request_is_left_out(system: Json, told: str):
    assert messages_of(system, [HI])[0]["content"] == told


def test_a_user_may_say_anything():
    assert messages_of(BILLING, [user_of(BILLING)]) == [user_of(BILLING)]


@pytest.mark.parametrize("system", [None, "", []])
def test_no_system_prompt_is_no_message(system: Json):
    assert messages_of(system, [HI]) == [HI]


def test_a_text_and_one_block_of_it_are_the_same():
    assert said(text("hi", **CACHED)) == [HI]


def test_texts_of_a_user_are_one_text_with_line_breaks():
    assert said(text("a"), text("b")) == [{"role": "user", "content": "a\nb"}]


@pytest.mark.parametrize("content", ["", []])
@pytest.mark.parametrize("role", ["user", "assistant", "system"])
def test_an_empty_message_is_an_empty_message(role: str, content: Json):
    assert messages_of(
        None, [{"role": role, "content": content}, {"role": "system", "content": "x"}]
    )[0] == {"role": role, "content": ""}


def test_results_of_tools_are_messages_in_their_place():
    other = {**result([text("4"), text("degrees")]), "tool_use_id": "c2"}
    assert said(result("sunny"), other, text("and?"), text("now")) == [
        {"role": "tool", "tool_call_id": "c1", "content": "sunny"},
        {"role": "tool", "tool_call_id": "c2", "content": "4\ndegrees"},
        {"role": "user", "content": "and?\nnow"},
    ]
    assert [m["role"] for m in said(text("look"), result("x"), text("and"))] == [
        "user",
        "tool",
        "user",
    ]


@pytest.mark.parametrize(
    ("content", "told"), [("no such file", "no such file"), ("", "error"), (None, "error")]
)
def test_a_failure_says_what_the_tool_said_and_error_if_that_was_nothing(content: Json, told: str):
    assert said(result(content, is_error=True))[0]["content"] == told
    assert said(result(content, is_error=False))[0]["content"] == (content or "")


def test_a_reply_is_thought_text_and_calls():
    blocks = [
        {"type": "thinking", "thinking": "hm", "signature": "x"},
        {"type": "redacted_thinking", "data": "x"},
        text("let me "),
        text("look"),
        {"type": "tool_use", "id": "c1", "name": "f", "input": {"a": 1}, **CACHED},
    ]
    function = {"name": "f", "arguments": '{"a":1}'}
    assert said(*blocks, role="assistant") == [
        {
            "role": "assistant",
            "content": "let me look",
            "reasoning_content": "hm",
            "tool_calls": [{"id": "c1", "type": "function", "function": function}],
        }
    ]


def test_a_reply_of_calls_only_has_null_content():
    (message,) = said({"type": "tool_use", "id": "c", "name": "f", "input": {}}, role="assistant")
    assert message["content"] is None


def test_replies_in_a_row_are_one_reply():
    pieces = [
        {"role": "assistant", "content": [{"type": "thinking", "thinking": "hm"}]},
        {"role": "assistant", "content": "ok"},
    ]
    assert messages_of(None, [HI, *pieces, HI, HI]) == [
        HI,
        {"role": "assistant", "content": "ok", "reasoning_content": "hm"},
        HI,
        HI,
    ]


@pytest.mark.parametrize(
    ("messages", "param"),
    [
        (None, "messages"),
        ([], "messages"),
        ({}, "messages"),
        (["hi"], "messages[0]"),
        ([HI, {"role": "tool", "content": "x"}], "messages[1].role"),
        ([{"role": ["user"], "content": "x"}], "messages[0].role"),
        ([{"role": "user", "content": 1}], "messages[0].content"),
        ([{"role": "user", "content": ["x"]}], "messages[0].content[0]"),
        ([{"role": "user", "content": [{"text": "x"}]}], "messages[0].content[0]"),
        ([{"role": "user", "content": [{"type": "text"}]}], "messages[0].content[0].text"),
        ([{"role": "system", "content": [{"type": 1}]}], "messages[0].content[0]"),
        (
            [{"role": "user", "content": [{"type": "tool_result", "content": "x"}]}],
            "messages[0].content[0].tool_use_id",
        ),
        ([{"role": "user", "content": [result(5)]}], "messages[0].content[0].content"),
        (
            [{"role": "assistant", "content": [{"type": "tool_use", "id": "c", "name": "f"}]}],
            "messages[0].content[0].input",
        ),
        (
            [{"role": "assistant", "content": [{"type": "tool_use", "id": "c", "input": {}}]}],
            "messages[0].content[0].name",
        ),
        (
            [{"role": "assistant", "content": [{"type": "thinking"}]}],
            "messages[0].content[0].thinking",
        ),
    ],
)
def test_what_is_malformed_is_refused_with_its_place(messages: Json, param: str):
    with pytest.raises(RequestError) as raised:
        messages_of(None, messages)
    assert raised.value.param == param
    assert raised.value.code == "invalid_request"


@pytest.mark.parametrize(
    ("message", "param"),
    [
        ({"role": "user", "content": [text("x"), {"type": "image"}]}, "messages[0].content[1]"),
        ({"role": "user", "content": [{"type": "document"}]}, "messages[0].content[0]"),
        ({"role": "user", "content": [{"type": "tool_use"}]}, "messages[0].content[0]"),
        (
            {"role": "user", "content": [result([{"type": "image"}])]},
            "messages[0].content[0].content[0]",
        ),
        ({"role": "assistant", "content": [{"type": "server_tool_use"}]}, "messages[0].content[0]"),
        ({"role": "assistant", "content": [result("x")]}, "messages[0].content[0]"),
    ],
)
def test_what_is_no_text_is_refused_with_its_place(message: Json, param: str):
    with pytest.raises(UnsupportedContentError) as raised:
        messages_of(None, [message])
    assert raised.value.param == param


def test_a_system_prompt_is_only_text():
    with pytest.raises(UnsupportedContentError) as raised:
        messages_of([{"type": "image"}], [HI])
    assert raised.value.param == "system[0]"
