"""Episodes of one shard: admission, claims, and clean-up on every way out."""

import asyncio
from collections.abc import AsyncIterator

import pytest

from sessions.errors.client_visible import UnprocessableError
from sessions.tools.claims import LocalClaims
from tests.support.episodes import Opened, Run, context_of, open_environment, wait_for
from tests.support.rollouts import error_of


class NotedClaims(LocalClaims):
    """Claims that can be looked at."""

    @property
    def count(self) -> int:
        return len(self._held)


@pytest.fixture
def claims() -> NotedClaims:
    return NotedClaims()


@pytest.fixture
async def opened(claims: NotedClaims) -> AsyncIterator[Opened]:
    async with open_environment(context_of(claims=claims, max_episodes=3)) as found:
        yield found


async def test_the_reply_is_what_the_environment_gives(opened: Opened):
    held, run = await opened.begin("r", 2)
    assert (held.episode.id.key, held.episode.origin) == ("r-a2", "http://sessile.test:8000")
    held.is_over.set()
    reply = await run.reply()
    assert reply.status_code == 200
    assert reply.json()["request"] == {"rollout_id": "r", "attempt": 2}
    assert opened.environment.cleaned == ["r-a2"]
    assert opened.environment.open_episodes == 0


@pytest.mark.parametrize(
    ("body", "param"),
    [
        ({}, "rollout_id"),
        ({"rollout_id": 3}, "rollout_id"),
        ({"rollout_id": ""}, "rollout_id"),
        ({"rollout_id": "r-a1"}, "rollout_id"),
        ({"rollout_id": "r", "attempt": -1}, "attempt"),
        ({"rollout_id": "r", "attempt": True}, "attempt"),
        ({"rollout_id": "r", "attempt": "1"}, "attempt"),
        ({"rollout_id": "r", "attempt": None}, "attempt"),
    ],
)
async def test_a_body_that_names_no_episode_is_refused(opened: Opened, body: object, param: str):
    reply = await Run(opened.asgi, body).reply()
    assert error_of(reply, 400)["param"] == param
    assert opened.environment.held == {}


async def test_the_same_attempt_is_refused_while_the_first_goes_on(
    opened: Opened, claims: NotedClaims
):
    held, run = await opened.begin()
    for _ in range(3):
        error = error_of(await Run(opened.asgi, {"rollout_id": "r"}).reply(), 409)
        assert error["code"] == "duplicate_claim"
        assert (await opened.call(held.headers, text="hi")).status_code == 200
    assert (claims.count, opened.environment.open_episodes) == (1, 1)
    other, other_run = await opened.begin("r", 1)
    assert (await opened.call(other.headers, text="hi")).status_code == 200
    for episode, its_run in ((held, run), (other, other_run)):
        episode.is_over.set()
        assert (await its_run.reply()).status_code == 200
    assert claims.count == 0


async def test_one_episode_more_than_the_share_is_told_to_come_again(opened: Opened):
    begun = [await opened.begin(f"r{n}") for n in range(3)]
    full = await Run(opened.asgi, {"rollout_id": "more"}).reply()
    assert error_of(full, 503)["code"] == "overloaded"
    assert full.headers["retry-after"] == "1"
    assert full.headers["x-should-retry"] == "true"
    begun[0][0].is_over.set()
    await begun[0][1].reply()
    more, its_run = await opened.begin("more")
    for held, run in [*begun[1:], (more, its_run)]:
        held.is_over.set()
        assert (await run.reply()).status_code == 200


async def test_a_crowd_that_comes_at_once_does_not_get_over_the_limit(opened: Opened):
    runs = [Run(opened.asgi, {"rollout_id": f"r{n}"}) for n in range(10)]
    await wait_for(lambda: sum(run.is_over for run in runs) == 7)
    assert opened.environment.open_episodes == 3
    for held in opened.environment.held.values():
        held.is_over.set()
    statuses = sorted([(await run.reply()).status_code for run in runs])
    assert statuses == [200] * 3 + [503] * 7


@pytest.mark.parametrize("way", ["error", "our error", "client", "cancel", "timeout"])
async def test_every_way_out_closes_releases_and_cleans(
    opened: Opened, claims: NotedClaims, way: str
):
    held, run = await opened.begin()
    if way == "client":
        run.leave()
    elif way == "cancel":
        run.task.cancel()
    else:
        faults: dict[str, Exception] = {
            "error": ValueError("a secret"),
            "our error": UnprocessableError("told"),
            "timeout": TimeoutError(),
        }
        held.fault = faults[way]
        held.is_over.set()
        status = 422 if way == "our error" else 500
        assert "secret" not in error_of(await run.reply(), status)["message"]
    await wait_for(lambda: run.is_over)
    assert (claims.count, opened.environment.open_episodes) == (0, 0)
    assert opened.environment.cleaned == ["r"]
    assert error_of(await opened.call(held.headers, text="hi"), 410)
    assert opened.environment.ran == []


async def test_the_clean_up_of_an_episode_whose_client_left_cannot_be_cancelled(opened: Opened):
    steps: list[str] = []
    go_on = asyncio.Event()

    async def close() -> None:
        steps.append("begun")
        await go_on.wait()
        steps.append("done")

    held, run = await opened.begin()
    held.episode.on_cleanup(close)
    run.leave()
    await wait_for(lambda: bool(steps))
    for _ in range(3):
        run.task.cancel()
        await asyncio.sleep(0)
    assert opened.environment.open_episodes == 1, "it counts until it is cleaned"
    go_on.set()
    await wait_for(lambda: run.is_over)
    assert steps == ["begun", "done"]
    assert opened.environment.open_episodes == 0


@pytest.mark.parametrize("fault", [SystemExit(3), asyncio.CancelledError()], ids=["exit", "cancel"])
async def test_a_run_that_raises_no_exception_is_a_fault_as_any_other(
    opened: Opened, claims: NotedClaims, fault: BaseException
):
    held, run = await opened.begin()
    held.fault = fault
    held.is_over.set()
    assert error_of(await run.reply(), 500)["code"] == "internal_error"
    assert (opened.environment.cleaned, claims.count) == (["r"], 0)


async def test_a_sweep_ends_what_runs_and_lets_nothing_more_in(opened: Opened, claims: NotedClaims):
    runs = [(await opened.begin(f"r{n}"))[1] for n in range(3)]
    await opened.environment.sweep()
    for run in runs:
        assert error_of(await run.reply(), 503)["code"] == "group_stopped"
    assert sorted(opened.environment.cleaned) == ["r0", "r1", "r2"]
    assert claims.count == 0
    late = await Run(opened.asgi, {"rollout_id": "late"}).reply()
    assert error_of(late, 503)["code"] == "not_ready"
    await opened.environment.sweep()


async def test_a_sweep_does_not_wait_for_ever(caplog: pytest.LogCaptureFixture):
    async with open_environment(context_of(cleanup_s=0.01)) as opened:
        held, run = await opened.begin()
        stuck = asyncio.Event()

        async def stubborn() -> None:
            while not stuck.is_set():
                try:
                    await stuck.wait()
                except asyncio.CancelledError:
                    continue

        held.episode.on_cleanup(stubborn)
        await opened.environment.sweep()
        assert "did not end in its budget" in caplog.text
        stuck.set()
        assert error_of(await run.reply(), 503)
