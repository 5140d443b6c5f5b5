"""Sessions whose messages are matched otherwise than strictly."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from sessions.core.matchers.choice import matcher_of
from sessions.errors.turns import HistoryMismatchError, MatcherFailedError
from tests.support.desk import Desk, assistant, is_recorded
from tests.support.engines import json_reply, sampled_document

OpenDesk = Callable[..., Any]
TOOLS = [{"type": "function", "function": {"name": "f"}}]
MODES = ["linear", "tree"]


def calling(arguments: object) -> dict[str, Any]:
    function = {"name": "f", "arguments": arguments}
    return {
        "role": "assistant",
        "content": None,
        "tool_calls": [{"id": "c", "type": "function", "function": function}],
    }


async def goes_on_after(desk: Desk, mode: str, message: dict[str, Any]) -> bool:
    """Whether a turn builds on the tokens of a tool call that comes back as this message."""
    calls = calling('{"a": 1, "b": 2}')["tool_calls"]
    desk.engine.answers = [desk.says("", tool_calls=calls), desk.says("done")]
    session = desk.open(mode=mode)
    await desk.chat(session, "hi", tools=TOOLS)
    result = {"role": "tool", "tool_call_id": "c", "content": "r"}
    assert is_recorded(await desk.chat(session, "hi", message, result, tools=TOOLS))
    first, second = [body["input_ids"] for body in desk.engine.bodies]
    checkpoint = first + desk.sampled_ids("")
    return bool(second[: len(checkpoint)] == checkpoint)


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize(
    ("matcher", "message", "goes_on"),
    [
        ("strict", calling('{"a": 1, "b": 2}'), True),
        ("strict", calling({"b": 2, "a": 1}), False),
        ("loose_tool_call", calling({"b": 2, "a": 1.0}), True),
        ("loose_tool_call", calling({"b": 2, "a": True}), False),
        ("loose_tool_call", calling("{}"), False),
        ("role_content_only", assistant(""), True),
        ("role_content_only", assistant("x"), False),
        ("tests.support.own_matchers:same_role", assistant("x"), True),
    ],
)
async def test_the_matcher_says_whether_a_turn_goes_on(
    matcher: str, message: dict[str, Any], mode: str, open_desk: OpenDesk, *, goes_on: bool
):
    async with open_desk(matcher=matcher_of(matcher)) as desk:
        assert await goes_on_after(desk, mode, message) is goes_on


@pytest.mark.parametrize(
    ("matcher", "param"),
    [
        ("strict", "messages[0].content"),
        ("loose_tool_call", "messages[0].content"),
        ("role_content_only", "messages[0].content"),
        ("tests.support.own_matchers:never", "messages[0].content"),
    ],
)
async def test_a_refusal_names_the_first_message_and_field(
    matcher: str, param: str, open_desk: OpenDesk
):
    async with open_desk() as desk:
        session = desk.open()
        await desk.chat(session, "hi")
        await desk.chat(session, "hi", assistant("ok"), "more")
        desk.registry.find(session).history._matcher = matcher_of(matcher)
        with pytest.raises(HistoryMismatchError) as caught:
            await desk.chat(session, "HI", assistant("ok"), "more", assistant("ok"))
        assert caught.value.param == param
        assert "'HI'" in caught.value.message


async def test_a_matcher_of_somebody_else_that_names_no_field_names_the_message(
    open_desk: OpenDesk,
):
    async with open_desk() as desk:
        session = desk.open()
        await desk.chat(session, "hi")
        await desk.chat(session, "hi", assistant("ok"), "more")
        desk.registry.find(session).history._matcher = matcher_of(
            "tests.support.own_matchers:never"
        )
        with pytest.raises(HistoryMismatchError) as caught:
            await desk.chat(session, "hi", assistant("ok"), "more", assistant("ok"))
        assert caught.value.param == "messages[0]"


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("name", ["raises", "gives_none"])
async def test_a_broken_matcher_is_a_500_that_records_nothing(
    name: str, mode: str, open_desk: OpenDesk
):
    async with open_desk(matcher=matcher_of(f"tests.support.own_matchers:{name}")) as desk:
        session = desk.open(mode=mode)
        await desk.chat(session, "hi")
        with pytest.raises(MatcherFailedError) as caught:
            await desk.chat(session, "hi", assistant("ok"), "more")
        assert caught.value.status == 500
        assert not caught.value.should_retry
        assert caught.value.is_unrecorded_turn
        assert len(desk.engine.requests) == 1
        assert len((await desk.read(session))["records"]) == 1


@pytest.mark.parametrize(("matcher", "goes_on"), [("strict", False), ("role_content_only", True)])
async def test_a_client_that_drops_the_reasoning_goes_on_where_the_matcher_leaves_it_out(
    matcher: str, open_desk: OpenDesk, *, goes_on: bool
):
    # C-T54.
    async with open_desk(matcher=matcher_of(matcher)) as desk:
        ids = desk.prompts.tokenizer.encode("<think>\nhm\n</think>\n\nok<|im_end|>")
        thought = sampled_document(ids, content="ok", reasoning_content="hm")
        desk.engine.answers = [json_reply(thought), desk.says("done")]
        session = desk.open()
        await desk.chat(session, "hi")
        await desk.chat(session, "hi", assistant("ok"), "more")
        first, second = [body["input_ids"] for body in desk.engine.bodies]
        assert (second[: len(first) + len(ids)] == first + ids) is goes_on
