"""Stopping a rollout: its agent is told that it is over, and it can still be graded."""

from collections.abc import AsyncIterator

import httpx
import pytest

from tests.support.episodes import Opened, Run, open_environment, wait_for
from tests.support.rollouts import error_of


@pytest.fixture
async def opened() -> AsyncIterator[Opened]:
    async with open_environment() as found:
        yield found


async def stop(opened: Opened, rollout: str) -> httpx.Response:
    return await opened.client.post(f"/ng-rollout/{rollout}/stop")


async def test_a_stopped_rollout_serves_no_call_and_still_gives_its_result(opened: Opened):
    held, run = await opened.begin("r", 1)
    assert not held.episode.is_stopped
    assert (await opened.call(held.headers, text="hi")).status_code == 200
    reply = await stop(opened, "r-a1")
    assert (reply.status_code, reply.json()) == (200, {"rollout": "r-a1", "status": "stopped"})
    assert held.episode.is_stopped
    await held.episode.stopped.wait()
    assert error_of(await opened.call(held.headers, text="hi"), 410)["code"] == (
        "episode_not_running"
    )
    assert (await stop(opened, "r-a1")).json()["status"] == "already_stopped"
    held.is_over.set()
    result = await run.reply()
    assert (result.status_code, len(result.json()["calls"])) == (200, 1)


async def test_a_call_that_runs_is_answered_as_gone(opened: Opened):
    held, run = await opened.begin()
    call = Run(opened.asgi, {}, "/tools/wait", held.headers)
    await wait_for(lambda: bool(opened.environment.ran))
    assert (await stop(opened, "r")).status_code == 200
    error_of(await call.reply(), 410)
    held.is_over.set()
    assert (await run.reply()).json()["calls"][0]["state"] == "cancelled"


async def test_what_does_not_run_cannot_be_stopped(opened: Opened):
    for name in ("r", "r-a1"):
        error_of(await stop(opened, name), 410)
    held, run = await opened.begin("r")
    error_of(await stop(opened, "r-a1"), 410)
    held.is_over.set()
    await run.reply()
    error_of(await stop(opened, "r"), 410)
    assert (await opened.client.get("/ng-rollout/r/stop")).status_code == 405


async def test_a_stop_with_the_token_of_another_episode_stops_nothing(opened: Opened):
    """Behind a router such a request is at the shard of that other episode."""
    held, run = await opened.begin("r")
    other, other_run = await opened.begin("s")
    path = "/ng-rollout/r/stop"
    error_of(await opened.client.post(path, headers=other.headers), 410)
    assert not held.episode.is_stopped
    for headers in (dict.fromkeys(held.headers, "garbage"), held.headers):
        assert (await opened.client.post(path, headers=headers)).status_code == 200
    for one, its_run in ((held, run), (other, other_run)):
        one.is_over.set()
        await its_run.reply()


async def test_an_attempt_that_runs_again_is_not_stopped_by_the_stop_before(opened: Opened):
    held, run = await opened.begin("r")
    await stop(opened, "r")
    held.is_over.set()
    await run.reply()
    again, its_run = await opened.begin("r")
    assert not again.episode.is_stopped
    assert (await opened.call(again.headers, text="hi")).status_code == 200
    again.is_over.set()
    await its_run.reply()
