"""Who may call which session: cookies, tokens, which wins, and that the cookie is sent again."""

from __future__ import annotations

from collections.abc import AsyncIterator

import httpx
import pytest

from sessions.tools.session_cookie import SessionCookie
from sessions.tools.session_tokens import SessionTokens
from tests.support.rollouts import SECRET, error_of
from tests.support.seeded import TOKEN_HEADER, Scene, Seeding, cookie_of, open_scene

LABEL = "CounterResources"


@pytest.fixture
async def scene() -> AsyncIterator[Scene]:
    async with open_scene() as found:
        yield found


def refusal_of(reply: httpx.Response, status: int) -> str:
    error = error_of(reply, status)
    assert reply.headers["x-should-retry"] == "false"
    assert "www-authenticate" not in reply.headers
    code: str = error["code"]
    return code


async def total(scene: Scene, headers: dict[str, str]) -> int:
    reply = await scene.ask("/total", None, headers)
    assert reply.status_code == 200, reply.text
    found: int = reply.json()["total"]
    return found


async def two(scene: Scene) -> tuple[Seeding, Seeding]:
    return await scene.seed("s1", start=1), await scene.seed("s2", start=2)


async def test_a_cookie_or_a_token_names_the_session_and_the_cookie_wins(scene: Scene):
    """R-T12, elsewhere than on /mcp."""
    first, second = await two(scene)
    assert await total(scene, first.cookie) == 1
    assert await total(scene, second.token) == 2
    assert await total(scene, first.cookie | second.token) == 1


@pytest.mark.parametrize("path", ["/total", "/verify", "/close_session", "/nothing"])
async def test_who_brings_neither_is_refused_and_nothing_begins(scene: Scene, path: str):
    reply = await scene.ask(path)
    assert refusal_of(reply, 401) == "bad_session_cookie"
    assert cookie_of(reply) == {}
    assert scene.environment.open_sessions == 0


@pytest.mark.parametrize("path", ["/total", "/verify", "/close_session"])
async def test_a_bad_cookie_is_refused_whatever_else_comes(scene: Scene, path: str):
    first, _ = await two(scene)
    pair = first.cookie["cookie"]
    other_run = SessionCookie(LABEL, b"another run").header_of("s1").decode().partition("=")[2]
    for bad in (pair[:-1], pair + "x", pair.partition("=")[0] + "=" + other_run.partition(";")[0]):
        for more in ({}, first.token):
            reply = await scene.ask(path, None, {"cookie": bad} | more)
            assert refusal_of(reply, 401) == "bad_session_cookie"
            assert cookie_of(reply) == {}
    assert scene.environment.closed == {}
    assert await total(scene, first.cookie) == 1


async def test_a_bad_token_is_refused(scene: Scene):
    first, _ = await two(scene)
    other_run = SessionTokens(LABEL, b"another run").sign("s1", ["total"])
    for text in ("garbage", first.token[TOKEN_HEADER] + "x", other_run):
        reply = await scene.ask("/total", None, {TOKEN_HEADER: text})
        assert refusal_of(reply, 401) == "bad_session_token"


async def test_a_token_lets_its_holder_call_its_tools_alone(scene: Scene):
    first = await scene.seed("s1", over_mcp=["total"])
    assert await total(scene, first.token) == 0
    reply = await scene.ask("/add", {"n": 1}, first.token)
    assert refusal_of(reply, 403) == "tool_not_granted"
    for path in ("/verify", "/close_session"):
        assert refusal_of(await scene.ask(path, None, first.token), 403) == "tool_not_granted"
    assert (await scene.ask("/add", {"n": 1}, first.cookie)).status_code == 200
    assert scene.environment.closed == {}


async def test_the_white_space_around_a_token_is_no_part_of_it(scene: Scene):
    first = await scene.seed("s1")
    assert await total(scene, {TOKEN_HEADER: f" \t{first.token[TOKEN_HEADER]}\t "}) == 0


async def test_every_reply_brings_the_cookie_again(scene: Scene):
    first = await scene.seed("s1", stuck=1)
    asked: list[tuple[str, object, int]] = [
        ("/total", None, 200),
        ("/add", {"n": "1"}, 422),
        ("/add", [], 400),
        ("/refuse", None, 422),
        ("/nothing", None, 404),
        ("/no/route", None, 404),
        ("/verify", {"reward": "nan"}, 500),
        ("/verify", None, 200),
        ("/close_session", None, 500),
        ("/close_session", None, 200),
        ("/total", None, 410),
    ]
    cookie = first.cookie
    for path, body, status in asked:
        reply = await scene.ask(path, body, cookie)
        assert reply.status_code == status, reply.text
        cookie = cookie_of(reply)
        assert cookie, f"none came with {path}"
    assert refusal_of(await scene.ask("/total", None, cookie), 410) == "session_not_open"


async def test_a_seed_brings_the_cookie_of_its_session_alone(scene: Scene):
    first = await scene.seed("s1", start=1)
    body = {"resources_session_id": "s2", "start": 2}
    reply = await scene.ask("/seed_session", body, first.cookie)
    assert await total(scene, cookie_of(reply)) == 2
    refused = await scene.ask("/seed_session", body | {"start": 3}, first.cookie)
    assert refused.status_code == 409
    assert await total(scene, cookie_of(refused)) == 1, "its client keeps what it had"


async def test_a_session_that_never_was_is_not_made_by_a_cookie(scene: Scene):
    """A well signed one: of a session that was forgotten."""
    header = SessionCookie(LABEL, SECRET).header_of("never").decode().partition(";")[0]
    reply = await scene.ask("/total", None, {"cookie": header})
    assert refusal_of(reply, 410) == "session_not_open"
    assert scene.environment.open_sessions == 0
