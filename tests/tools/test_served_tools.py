"""Served tools: what runs, what is recorded, what closing ends."""

import asyncio
import math
import sys
from collections.abc import Callable
from typing import Any

import pytest

from sessions.errors.client_visible import InternalError
from sessions.errors.episodes import (
    EpisodeNotRunningError,
    ToolArgumentsError,
    ToolError,
    UnknownToolError,
)
from sessions.errors.unseen import LocalProtocolError
from sessions.tools.served_tools import CallState, ServedTools, ToolCall
from sessions.tools.tool import tool_of
from tests.support.episodes import wait_for


class Stage:
    """Tools of all sorts."""

    def __init__(self) -> None:
        self.calls: list[ToolCall] = []
        self.ran: list[str] = []
        self.go_on = asyncio.Event()
        tools: list[Callable[..., Any]] = [self.add, self.slow, self.refuse]
        tools += [self.fail, self.odd]
        made = [tool_of(tool) for tool in tools]
        self.served = ServedTools(made, self.calls)

    def add(self, n: int) -> dict[str, int]:
        self.ran.append(f"add {n}")
        return {"n": n}

    async def slow(self, n: int) -> set[int]:
        self.ran.append(f"slow {n}")
        await self.go_on.wait()
        return {n}

    def refuse(self) -> None:
        raise ToolError("the door is locked")

    async def fail(self) -> None:
        raise ValueError("a secret")

    def odd(self) -> object:
        return object()


async def test_calls_are_recorded_in_the_order_in_which_they_began():
    stage = Stage()
    slow = asyncio.create_task(stage.served.call("slow", {"n": 1}))
    await wait_for(lambda: bool(stage.ran))
    assert await stage.served.call("add", {"n": 2}) == {"n": 2}
    assert [call.state for call in stage.calls] == [CallState.RUNNING, CallState.DONE]
    stage.go_on.set()
    assert await slow == [1], "as JSON says it"
    assert [call.to_json() for call in stage.calls] == [
        {"name": "slow", "arguments": {"n": 1}, "state": "done", "result": [1]},
        {"name": "add", "arguments": {"n": 2}, "state": "done", "result": {"n": 2}},
    ]
    assert stage.ran == ["slow 1", "add 2"]


@pytest.mark.parametrize(
    ("name", "arguments", "kind"),
    [
        ("nothing", {}, UnknownToolError),
        ("add", {"n": "2"}, ToolArgumentsError),
        ("add", [2], ToolArgumentsError),
        ("slow", {}, ToolArgumentsError),
    ],
)
async def test_a_refused_call_runs_no_tool_and_is_not_recorded(
    name: str, arguments: object, kind: type[Exception]
):
    stage = Stage()
    with pytest.raises(kind):
        await stage.served.call(name, arguments)
    assert (stage.ran, stage.calls) == ([], [])


async def test_what_is_closed_runs_nothing():
    stage = Stage()
    stage.served.close()
    for name in ("add", "nothing"):
        with pytest.raises(EpisodeNotRunningError, match="not running on this server"):
            await stage.served.call(name, {"n": 1})
    assert (stage.ran, stage.calls, stage.served.is_open) == ([], [], False)


async def test_what_a_tool_says_is_shown_and_what_it_leaks_is_not():
    stage = Stage()
    with pytest.raises(ToolError, match="the door is locked"):
        await stage.served.call("refuse", {})
    for name in ("fail", "odd"):
        with pytest.raises(InternalError) as caught:
            await stage.served.call(name, {})
        assert "secret" not in caught.value.message
    told = [(call.state, call.error) for call in stage.calls]
    assert told[0] == (CallState.FAILED, "the door is locked")
    assert told[1:] == [
        (CallState.FAILED, f"tool {name!r} failed; the server's log says why")
        for name in ("fail", "odd")
    ]
    assert stage.calls[0].to_json()["error"] == "the door is locked"


async def test_closing_cancels_the_calls_that_run_and_answers_them_as_gone():
    stage = Stage()
    task = asyncio.create_task(stage.served.call("slow", {"n": 1}))
    await wait_for(lambda: bool(stage.ran))
    stage.served.close()
    stage.served.close()
    with pytest.raises(EpisodeNotRunningError):
        await task
    assert stage.calls[0].to_json() == {
        "name": "slow",
        "arguments": {"n": 1},
        "state": "cancelled",
    }


async def test_a_caller_that_leaves_cancels_its_call_alone():
    stage = Stage()
    leaving = asyncio.create_task(stage.served.call("slow", {"n": 1}))
    staying = asyncio.create_task(stage.served.call("slow", {"n": 2}))
    await wait_for(lambda: len(stage.ran) == 2)
    leaving.cancel()
    with pytest.raises(asyncio.CancelledError):
        await leaving
    stage.go_on.set()
    assert await staying == [2]
    assert [call.state for call in stage.calls] == [CallState.CANCELLED, CallState.DONE]


def test_two_tools_of_one_name_are_refused():
    tool = tool_of(lambda: None, name="twice")
    with pytest.raises(LocalProtocolError, match="'twice'"):
        ServedTools([tool, tool], [])


async def test_a_plain_tool_has_run_when_its_call_has_begun():
    stage = Stage()
    call, rest = stage.served.begin("add", {"n": 2})
    assert (rest, call.state, call.result) == (None, CallState.DONE, {"n": 2})
    with pytest.raises(ToolError):
        stage.served.begin("refuse", {})
    call, rest = stage.served.begin("slow", {"n": 3})
    assert (call.state, stage.calls[-1]) == (CallState.RUNNING, call)
    assert rest is not None
    stage.go_on.set()
    await rest
    assert (call.state, call.result) == (CallState.DONE, [3])


async def test_a_call_that_is_closed_before_its_first_step_runs_nothing():
    stage = Stage()
    call, rest = stage.served.begin("slow", {"n": 1})
    stage.served.close()
    assert rest is not None
    with pytest.raises(EpisodeNotRunningError):
        await rest
    assert (stage.ran, call.state) == ([], CallState.CANCELLED)


@pytest.mark.parametrize("name", ["leave", "leave_later", "drop", "drop_later"])
async def test_a_tool_that_raises_no_exception_has_failed_as_any_other(name: str):
    """It would end the shard, or look like a client that left."""

    def leave() -> None:
        sys.exit(3)

    async def leave_later() -> None:
        sys.exit(3)

    def drop() -> None:
        raise asyncio.CancelledError

    async def drop_later() -> None:
        raise asyncio.CancelledError

    calls: list[ToolCall] = []
    tools = [tool_of(tool) for tool in (leave, leave_later, drop, drop_later)]
    with pytest.raises(InternalError, match="failed; the server's log says why"):
        await ServedTools(tools, calls).call(name, {})
    assert [call.state for call in calls] == [CallState.FAILED]


@pytest.mark.parametrize("result", ["\ud800", {"\ud800": 1}])
async def test_a_result_that_no_reply_can_hold_fails_its_call(result: object):
    def tell() -> object:
        return result

    calls: list[ToolCall] = []
    with pytest.raises(InternalError):
        await ServedTools([tool_of(tell)], calls).call("tell", {})
    assert [call.state for call in calls] == [CallState.FAILED]


async def test_what_json_cannot_say_of_numbers_is_null_for_whoever_tells_it():
    def tell() -> object:
        return {"x": math.nan, 1: math.inf}

    assert await ServedTools([tool_of(tell)], []).call("tell", {}) == {"x": None, "1": None}
