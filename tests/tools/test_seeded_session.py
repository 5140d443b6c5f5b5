"""A session as its environment sees it: tools once, stops, and what a token allows."""

from __future__ import annotations

import asyncio

import pytest

from sessions.errors.episodes import UnknownToolError
from sessions.errors.seeded_sessions import SessionNotOpenError, ToolNotGrantedError
from sessions.errors.unseen import LocalProtocolError
from sessions.tools.seeded_session import GrantedTools, SeededSession
from sessions.tools.tool import tool_of


def add(n: int) -> int:
    return n + 1


def total() -> int:
    return 7


def made() -> SeededSession:
    session = SeededSession(id="s1")
    session.serve_tools([add, total])
    return session


def test_a_session_has_no_tools_until_it_is_given_some():
    session = SeededSession(id="s1")
    with pytest.raises(UnknownToolError):
        GrantedTools(session).check("add")
    assert (session.state, session.rollout, session.calls) == (None, None, [])


@pytest.mark.parametrize("name", ["seed_session", "verify", "close_session", "mcp"])
def test_a_tool_cannot_have_the_name_of_a_route_of_ours(name: str):
    with pytest.raises(LocalProtocolError, match=name):
        SeededSession(id="s1").serve_tools([add, tool_of(total, name=name)])


def test_only_tools_that_are_there_can_be_called_over_mcp():
    session = SeededSession(id="s1")
    with pytest.raises(LocalProtocolError, match="none of the session's tools"):
        session.serve_tools([add], over_mcp=["add", "total"])
    session.serve_tools([add, total], over_mcp=["total"])
    assert session.over_mcp == {"total"}
    session.serve_tools([add, total])
    assert session.over_mcp == {"add", "total"}


async def test_a_token_shows_and_calls_what_it_names():
    session = made()
    granted = GrantedTools(session, frozenset({"add", "gone"}))
    assert list(granted.tools) == ["add"]
    assert await granted.call("add", {"n": 1}) == 2
    with pytest.raises(ToolNotGrantedError):
        await granted.call("total", {})
    with pytest.raises(UnknownToolError):
        await granted.call("gone", {})
    assert list(GrantedTools(session).tools) == ["add", "total"]
    assert [call.name for call in session.calls] == ["add"]


async def test_a_stop_closes_the_tools_and_lets_it_be_graded():
    session = made()
    assert session.stop()
    assert not session.stop()
    assert session.is_stopped
    with pytest.raises(SessionNotOpenError, match="its rollout was stopped"):
        await GrantedTools(session).call("total", {})
    session.verdicts.check_open()


async def test_a_stop_that_comes_before_the_tools_closes_them():
    session = SeededSession(id="s1")
    session.stop()
    session.serve_tools([add, total])
    with pytest.raises(SessionNotOpenError):
        await GrantedTools(session).call("total", {})


async def test_a_closed_session_is_used_by_nothing():
    session = made()
    session.close()
    with pytest.raises(SessionNotOpenError, match="it was closed"):
        await GrantedTools(session).call("total", {})
    with pytest.raises(SessionNotOpenError):
        session.verdicts.check_open()


async def test_a_session_is_in_use_while_a_call_of_it_runs():
    session = made()
    go_on = asyncio.Event()

    async def wait() -> None:
        await go_on.wait()

    session.serve_tools([wait])
    call = asyncio.create_task(GrantedTools(session).call("wait", {}))
    await asyncio.sleep(0)
    assert session.uses == 1
    begun = session.last_used
    go_on.set()
    await call
    assert session.uses == 0
    assert session.last_used > begun
