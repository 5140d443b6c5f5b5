"""Direct calls: what they need, what they answer, and that refused ones run nothing."""

from collections.abc import AsyncIterator

import pytest

from sessions.routing.episode_tokens import sign_episode_token
from tests.support.episodes import HEADER, Held, Opened, Run, open_environment, wait_for
from tests.support.rollouts import SECRET, error_of


@pytest.fixture
async def opened() -> AsyncIterator[Opened]:
    async with open_environment() as found:
        yield found


async def test_a_call_with_the_grants_headers_runs_the_tool_once(opened: Opened):
    held, run = await opened.begin()
    reply = await opened.call(held.headers, text="hi")
    assert (reply.status_code, reply.content) == (200, b'{"noted":"hi"}')
    assert reply.headers["content-type"] == "application/json"
    assert opened.environment.ran == ["r: hi"]
    held.is_over.set()
    assert (await run.reply()).json()["calls"] == [
        {"name": "note", "arguments": {"text": "hi"}, "state": "done", "result": {"noted": "hi"}}
    ]


@pytest.mark.parametrize(
    ("token", "status", "code"),
    [
        (None, 401, "bad_episode_token"),
        ("", 401, "bad_episode_token"),
        ("garbage", 401, "bad_episode_token"),
        (sign_episode_token(b"another run", "r", "nonce"), 401, "bad_episode_token"),
        (sign_episode_token(SECRET, "r", "nonce"), 403, "wrong_nonce"),
        (sign_episode_token(SECRET, "r-a1", "nonce"), 410, "episode_not_running"),
        (sign_episode_token(SECRET, "never", "nonce"), 410, "episode_not_running"),
    ],
)
async def test_a_refused_call_runs_nothing_and_the_episode_goes_on(
    opened: Opened, token: str | None, status: int, code: str
):
    held, run = await opened.begin()
    headers = {} if token is None else {HEADER: token}
    for name in ("note", "nothing"):  # an outsider does not learn which tools there are
        reply = await opened.call(headers, name, text="hi")
        assert error_of(reply, status)["code"] == code
        assert reply.headers["x-should-retry"] == "false"
        assert "www-authenticate" not in reply.headers
    assert opened.environment.ran == []
    assert (await opened.call(held.headers, text="hi")).status_code == 200
    held.is_over.set()
    assert len((await run.reply()).json()["calls"]) == 1


async def test_calls_that_are_not_the_tools_are_told_to_the_agent(opened: Opened):
    held, run = await opened.begin()
    wrong = await opened.call(held.headers, text=3)
    assert error_of(wrong, 422)["param"] == "text"
    assert error_of(await opened.call(held.headers, "nothing"), 404)["code"] == "unknown_tool"
    url = "/tools/note"
    plain = await opened.client.post(url, headers=held.headers, content=b"[1]")
    assert error_of(plain, 400)["code"] == "invalid_request"
    got = await opened.client.get(url, headers=held.headers)
    assert error_of(got, 405)["code"] == "method_not_allowed"
    assert got.headers["allow"] == "POST"
    assert opened.environment.ran == []
    held.is_over.set()
    assert (await run.reply()).json()["calls"] == []


async def test_an_ended_episodes_token_is_answered_as_gone(opened: Opened):
    held, run = await opened.begin()
    held.is_over.set()
    await run.reply()
    error = error_of(await opened.call(held.headers, text="hi"), 410)
    assert "not running on this server" in error["message"]
    again, rerun = await opened.begin()
    assert error_of(await opened.call(held.headers, text="hi"), 403)["code"] == "wrong_nonce"
    assert (await opened.call(again.headers, text="hi")).status_code == 200
    again.is_over.set()
    await rerun.reply()


async def waiting_call(opened: Opened, held: Held) -> Run:
    call = Run(opened.asgi, {}, "/tools/wait", held.headers)
    await wait_for(lambda: opened.environment.ran == ["r: wait"])
    return call


async def test_a_client_that_leaves_cancels_its_call_and_nothing_else(opened: Opened):
    held, run = await opened.begin()
    call = await waiting_call(opened, held)
    call.leave()
    await wait_for(lambda: call.is_over)
    assert opened.environment.cancelled == ["r"]
    assert (await opened.call(held.headers, text="hi")).status_code == 200
    held.is_over.set()
    states = [call["state"] for call in (await run.reply()).json()["calls"]]
    assert states == ["cancelled", "done"]


async def test_a_call_that_outlives_its_episode_is_cancelled_and_gone(opened: Opened):
    held, run = await opened.begin()
    call = await waiting_call(opened, held)
    held.is_over.set()
    assert error_of(await call.reply(), 410)["code"] == "episode_not_running"
    assert opened.environment.cancelled == ["r"]
    assert (await run.reply()).status_code == 200
