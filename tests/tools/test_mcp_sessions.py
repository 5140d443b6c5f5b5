"""Sessions of stateful MCP: claimed before they are announced, given up when they end."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field

import pytest
from starlette.types import Message, Receive, Scope, Send

from sessions.errors.episodes import DuplicateClaimError
from sessions.routing.claim_keys import claim_key
from sessions.routing.claimed_kinds import MCP_SESSION, MCP_SESSIONS
from sessions.shard.session_holder import SessionHolder
from sessions.tools.mcp_sessions import McpSessions
from tests.support.waiting import wait_until_async


def key_of(session_id: str) -> bytes:
    return claim_key(MCP_SESSION, session_id)


class SlowClaims:
    """Claims that are granted when a test says so."""

    def __init__(self) -> None:
        self.held: set[bytes] = set()
        self.asked: list[bytes] = []
        self.may_grant = asyncio.Event()
        self.may_grant.set()

    async def claim(self, key: bytes) -> None:
        self.asked.append(key)
        await self.may_grant.wait()
        if key in self.held:
            raise DuplicateClaimError("held")
        self.held.add(key)

    def release(self, key: bytes) -> None:
        self.held.discard(key)

    def end(self, key: bytes) -> None:
        raise AssertionError("nothing is kept of a session of MCP")


@dataclass
class Stage:
    """An application that answers what it is told, with sessions around it.

    Attributes:
        status: Of its next replies.
        announces: The id in them, or "".
        may_end: It ends its replies when this is set.
        idle_s: Of the sessions.
    """

    idle_s: float = 60.0
    status: int = 200
    announces: str = ""
    may_end: asyncio.Event = field(default_factory=asyncio.Event)
    claims: SlowClaims = field(default_factory=SlowClaims)
    sent: list[Message] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.may_end.set()
        self.sessions = McpSessions(self.app, idle_s=self.idle_s)
        self.sessions.use_claims(self.claims)

    async def app(self, _scope: Scope, _receive: Receive, send: Send) -> None:
        headers = [(b"mcp-session-id", self.announces.encode())] if self.announces else []
        await send({"type": "http.response.start", "status": self.status, "headers": headers})
        await self.may_end.wait()
        await send({"type": "http.response.body", "body": b""})

    async def ask(self, session_id: str = "", method: str = "POST", path: bytes = b"/mcp") -> None:
        async def send(message: Message) -> None:
            self.sent.append(message)

        async def receive() -> Message:
            raise AssertionError("bodies are the application's")

        headers = [(b"mcp-session-id", session_id.encode())] if session_id else []
        scope = {"type": "http", "method": method, "raw_path": path, "headers": headers}
        await self.sessions(scope, receive, send)

    async def open(self, session_id: str = "a") -> None:
        self.announces = session_id
        await self.ask()
        self.announces = ""


@pytest.fixture
async def stage() -> Stage:
    return Stage()


async def test_it_is_a_holder_of_sessions_of_mcp(stage: Stage):
    assert isinstance(stage.sessions, SessionHolder)
    assert stage.sessions.session_kinds == (MCP_SESSIONS,)


async def test_a_reply_that_announces_a_session_waits_for_its_claim(stage: Stage):
    stage.claims.may_grant.clear()
    opening = asyncio.create_task(stage.open())
    await wait_until_async(lambda: bool(stage.claims.asked), "the claim")
    assert not stage.sent
    stage.claims.may_grant.set()
    await opening
    assert [message["type"] for message in stage.sent] == [
        "http.response.start",
        "http.response.body",
    ]
    assert stage.claims.held == {key_of("a")}


async def test_a_session_is_claimed_once_however_often_it_is_announced(stage: Stage):
    await stage.open()
    stage.announces = "a"
    await stage.ask("a")
    assert stage.claims.asked == [key_of("a")]


async def test_a_claim_that_is_refused_fails_the_reply(stage: Stage):
    stage.claims.held.add(key_of("a"))
    with pytest.raises(DuplicateClaimError):
        await stage.open()
    assert (stage.sent, stage.sessions.held) == ([], 0)
    assert stage.claims.held == {key_of("a")}


async def test_an_error_announces_nothing(stage: Stage):
    stage.status = 400
    await stage.open()
    assert not stage.claims.asked


async def test_what_is_not_on_the_path_of_mcp_is_left_alone(stage: Stage):
    stage.announces = "a"
    await stage.ask(path=b"/other")
    assert not stage.claims.asked
    assert len(stage.sent) == 2


@pytest.mark.parametrize(("method", "status"), [("DELETE", 200), ("DELETE", 204), ("POST", 404)])
async def test_a_session_that_ended_is_given_up(stage: Stage, method: str, status: int):
    await stage.open("a")
    await stage.open("b")
    stage.status = status
    await stage.ask("a", method)
    assert stage.claims.held == {key_of("b")}
    await stage.ask("b", method)
    assert (stage.claims.held, stage.sessions.held) == (set(), 0)


@pytest.mark.parametrize(("method", "status"), [("DELETE", 405), ("POST", 200), ("GET", 500)])
async def test_a_session_that_goes_on_is_kept(stage: Stage, method: str, status: int):
    await stage.open()
    stage.status = status
    await stage.ask("a", method)
    assert stage.claims.held == {key_of("a")}


async def test_the_end_of_an_unknown_session_gives_nothing_up(stage: Stage):
    await stage.open()
    stage.status = 404
    await stage.ask("other")
    await stage.ask()
    assert stage.claims.held == {key_of("a")}


async def test_a_session_that_nobody_uses_is_given_up():
    stage = Stage(idle_s=0.02)
    await stage.open()
    await wait_until_async(lambda: not stage.claims.held, "the claim's end")
    assert stage.sessions.held == 0


async def test_a_session_with_a_request_in_flight_is_used():
    stage = Stage(idle_s=0.02)
    await stage.open("idle")
    await stage.open("used")
    stage.may_end.clear()
    streaming = asyncio.create_task(stage.ask("used", "GET"))
    await wait_until_async(lambda: stage.claims.held == {key_of("used")}, "the idle one's end")
    stage.may_end.set()
    await streaming
    await wait_until_async(lambda: not stage.claims.held, "the other's end")
