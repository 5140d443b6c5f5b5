"""Tests of benchmarks.tool_crowds: an end that tells something else is not right."""

from __future__ import annotations

import json
from http.cookiejar import CookieJar, DefaultCookiePolicy

import httpx
import pytest

from benchmarks.tool_crowds import ENDED_SESSIONS, SessionCrowd


class Sessions:
    """A server of sessions that answers as it is told."""

    def __init__(self) -> None:
        self.asked: list[tuple[str, str, object]] = []
        self.total = 24
        self.calls = 9
        self.after = 410
        self.seed_status = 200

    def answer(self, request: httpx.Request) -> httpx.Response:
        path, body = request.url.path, json.loads(request.content)
        cookie = request.headers.get("cookie", "")
        self.asked.append((path, cookie, body))
        if path == "/seed_session":
            name = body.get("resources_session_id", "minted")
            bake = {"set-cookie": f"session={name}; path=/"}
            told = {"resources_session_id": name}
            return httpx.Response(self.seed_status, json=told, headers=bake)
        if path == "/add":
            return httpx.Response(self.after, json={})
        return httpx.Response(200, json={"total": self.total, "calls": self.calls})

    def crowd(self) -> SessionCrowd:
        client = httpx.AsyncClient(
            transport=httpx.MockTransport(self.answer),
            base_url="http://sessile.test",
            cookies=CookieJar(DefaultCookiePolicy(allowed_domains=[])),
        )
        return SessionCrowd(client, 4)


async def test_a_session_with_an_id_of_its_client_is_seeded_and_closed_twice() -> None:
    server = Sessions()
    crowd = server.crowd()
    assert crowd.kept_claims == 4 * ENDED_SESSIONS
    headers = await crowd.begin("m", 2)
    assert headers == [{"cookie": "session=minted"}, {"cookie": "session=m-1"}]
    assert await crowd.end([24, 24]) == [True, True]
    counts = [
        sum(path == asked[0] and asked[2] == body for asked in server.asked)
        for path, body in (
            ("/seed_session", {}),
            ("/seed_session", {"resources_session_id": "m-1"}),
            ("/close_session", {"resources_session_id": "minted"}),
            ("/close_session", {"resources_session_id": "m-1"}),
        )
    ]
    assert counts == [1, 2, 1, 2]
    assert {cookie for path, cookie, _ in server.asked if path == "/verify"} == {
        "session=minted",
        "session=m-1",
    }


@pytest.mark.parametrize(("name", "value"), [("total", 23), ("calls", 8), ("after", 200)])
async def test_an_end_that_tells_something_else_is_wrong(name: str, value: int) -> None:
    server = Sessions()
    crowd = server.crowd()
    await crowd.begin("m", 1)
    setattr(server, name, value)
    assert await crowd.end([24]) == [False]


async def test_a_seed_that_is_refused_ends_the_run() -> None:
    server = Sessions()
    server.seed_status = 503
    with pytest.raises(AssertionError, match="/seed_session: 503"):
        await server.crowd().begin("m", 1)
