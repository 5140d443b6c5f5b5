"""Seeds that come twice, at once, or fail; rollouts; sessions that nobody uses; the end."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import httpx
import pytest

from sessions.routing.claim_keys import claim_key
from sessions.routing.claimed_kinds import ENVIRONMENT, ROLLOUT_STOP
from tests.support.episodes import context_of, wait_for
from tests.support.rollouts import error_of
from tests.support.seeded import FIELD, GatedClaims, Scene, open_scene, seed_body, seeding_of


@pytest.fixture
def claims() -> GatedClaims:
    return GatedClaims()


@pytest.fixture
async def scene(claims: GatedClaims) -> AsyncIterator[Scene]:
    context = context_of(claims=claims, max_episodes=3, tombstones=4, cleanup_s=2.0)
    async with open_scene(context) as found:
        yield found


def code_of(reply: httpx.Response, status: int) -> str:
    code: str = error_of(reply, status)["code"]
    return code


# --- seeds


async def test_a_seed_that_comes_again_is_answered_alike_and_makes_nothing(scene: Scene):
    first = await scene.seed("s1", start=3, more={"a": 1, "b": [2]})
    await scene.ask("/add", {"n": 4}, first.cookie)
    for _ in range(3):
        again = seeding_of(
            await scene.ask("/seed_session", {"more": {"b": [2], "a": 1}, "start": 3, FIELD: "s1"})
        )
        assert again.told == first.told
        assert (await scene.ask("/total", None, again.cookie)).json()["total"] == 7
    assert scene.environment.seeded == {"s1": 1}


async def test_a_seed_of_another_payload_is_refused_and_harms_nothing(scene: Scene):
    first = await scene.seed("s1", start=3)
    for payload in ({"start": 4}, {}, {"start": 3, "x": None}, {"start": 3.0}):
        assert code_of(await scene.try_seed("s1", **payload), 409) == "seed_mismatch"
    assert (await scene.ask("/total", None, first.cookie)).json()["total"] == 3
    assert scene.environment.seeded == {"s1": 1}


async def test_many_seeds_at_once_make_one_session(scene: Scene):
    runs = [scene.begin("/seed_session", seed_body("s1", hold=True)) for _ in range(10)]
    await wait_for(lambda: scene.environment.holding == 1)
    other = scene.begin("/seed_session", seed_body("s1", hold=True, start=1))
    assert code_of(await other.reply(), 409) == "seed_mismatch"
    scene.environment.go_on.set()
    told = [seeding_of(await run.reply()).told for run in runs]
    assert told == [told[0]] * 10
    assert scene.environment.seeded == {"s1": 1}
    assert len(scene.environment._sessions) == 1


async def test_a_named_seed_goes_on_when_its_client_leaves(scene: Scene):
    run = scene.begin("/seed_session", seed_body("s1", hold=True))
    await wait_for(lambda: scene.environment.holding == 1)
    run.leave()
    scene.environment.go_on.set()
    await run.task
    assert (await scene.seed("s1", hold=True)).told["seeded"] == 1


async def test_a_seed_without_a_name_ends_with_its_client(scene: Scene, claims: GatedClaims):
    run = scene.begin("/seed_session", {"hold": True})
    await wait_for(lambda: scene.environment.holding == 1)
    run.leave()
    await wait_for(lambda: not scene.environment.open_sessions)
    assert list(scene.environment.closed.values()) == [1]
    await run.task


async def test_a_session_is_claimed_before_it_is_seeded(scene: Scene, claims: GatedClaims):
    claims.gate.clear()
    run = scene.begin("/seed_session", seed_body("s1"))
    await wait_for(lambda: claims.waiting == 1)
    assert (scene.environment.seeded, run.is_over) == ({}, False)
    claims.gate.set()
    seeding_of(await run.reply())
    assert claims.holds("s1")


async def test_a_claim_that_somebody_else_has_leaves_nothing(scene: Scene, claims: GatedClaims):
    await claims.claim(claim_key(ENVIRONMENT, "s1"))
    for reply in (await scene.try_seed("s1"), await scene.close("s1")):
        assert code_of(reply, 409) == "duplicate_claim"
        assert "is on another shard" in reply.json()["error"]["message"]
    assert (scene.environment.seeded, scene.environment.open_sessions) == ({}, 0)
    assert claims.holds("s1"), "it is another's"


@pytest.mark.parametrize("name", ["s1", None])
async def test_a_seed_that_fails_is_released_and_its_id_is_free(
    scene: Scene, claims: GatedClaims, name: str | None
):
    assert code_of(await scene.try_seed(name, fail=True), 422) == "unprocessable"
    assert list(scene.environment.closed.values()) == [1]
    assert (scene.environment.open_sessions, claims.count) == (0, 0)
    await scene.seed("s1")


async def test_a_seed_that_fails_and_cannot_be_released_must_be_closed(scene: Scene):
    body = seed_body("s1", fail=True, stuck=2)
    reply = await scene.ask("/seed_session", body)
    assert code_of(reply, 500) == "release_failed"
    assert reply.headers["x-should-retry"] == "true"
    assert code_of(await scene.close("s1"), 500) == "release_failed"
    assert (await scene.close("s1")).json()["status"] == "closed"
    assert code_of(await scene.try_seed("s1"), 409) == "session_released"


async def test_a_session_more_than_the_share_is_told_to_come_again(scene: Scene):
    names = ["s1", "s2", "s3"]
    await asyncio.gather(*[scene.seed(name) for name in names])
    full = await scene.try_seed("s4")
    assert code_of(full, 503) == "overloaded"
    assert full.headers["retry-after"] == "1"
    await scene.seed("s1")
    await scene.close("s1")
    await scene.seed("s4")


# --- rollouts


async def test_a_stopped_rollout_serves_no_call_and_can_be_graded(
    scene: Scene, claims: GatedClaims
):
    first = await scene.seed("s1", rollout_id="r", attempt=1, expected=0)
    assert claims.holds("r-a1", ROLLOUT_STOP)
    stop = await scene.ask("/ng-rollout/r-a1/stop")
    assert stop.json() == {"rollout": "r-a1", "status": "stopped"}
    reply = await scene.ask("/add", {"n": 1}, first.cookie)
    assert code_of(reply, 410) == "session_not_open"
    assert "its rollout was stopped" in reply.json()["error"]["message"]
    verdict = (await scene.ask("/verify", None, first.cookie)).json()
    assert (verdict["reward"], verdict["is_stopped"]) == (1.0, True)
    assert (await scene.ask("/ng-rollout/r-a1/stop")).json()["status"] == "already_stopped"
    await scene.close("s1")
    assert not claims.holds("r-a1", ROLLOUT_STOP)
    assert code_of(await scene.ask("/ng-rollout/r-a1/stop"), 410) == "episode_not_running"


async def test_a_rollout_has_one_session_at_a_time(scene: Scene, claims: GatedClaims):
    await scene.seed("s1", rollout_id="r")
    assert code_of(await scene.try_seed("s2", rollout_id="r"), 409) == "duplicate_claim"
    assert not claims.holds("s2")
    assert scene.environment.seeded == {"s1": 1}
    await scene.seed("s3", rollout_id="r", attempt=1)
    assert (await scene.ask("/ng-rollout/r/stop")).json()["status"] == "stopped"
    await scene.close("s1")
    await scene.seed("s2", rollout_id="r")


# --- those that nobody uses, and the end


async def test_a_seed_counts_as_a_use_and_so_does_one_that_comes_again(scene: Scene):
    loop = asyncio.get_running_loop()
    for _ in range(2):
        before = loop.time()
        await scene.seed("s1")
        session = scene.environment._sessions.find("s1")
        assert session.last_used >= before, "it would expire at the next look"
        assert session.uses == 0


async def test_a_session_that_nobody_uses_expires(claims: GatedClaims):
    async with open_scene(context_of(claims=claims, session_ttl_s=0.2)) as scene:
        first = await scene.seed("s1")
        call = scene.begin("/wait", None, first.cookie)
        other = await scene.seed("s2")
        await wait_for(lambda: scene.environment.closed == {"s2": 1})
        reply = await scene.ask("/total", None, other.cookie)
        assert "it expired" in reply.json()["error"]["message"]
        assert code_of(reply, 410) == "session_not_open"
        assert not call.is_over, "what a request uses does not expire"
        assert (await scene.close("s2")).json()["status"] == "already_closed"
        call.leave()
        await wait_for(lambda: scene.environment.closed == {"s1": 1, "s2": 1})
        await call.task


async def test_a_session_whose_release_fails_is_tried_again_by_time(claims: GatedClaims):
    async with open_scene(context_of(claims=claims, session_ttl_s=0.1)) as scene:
        await scene.seed("s1", stuck=2)
        await wait_for(lambda: scene.environment.closed == {"s1": 1})
        assert scene.environment.open_sessions == 0


async def test_the_sweep_closes_all_and_takes_no_more():
    async with open_scene() as scene:
        await scene.seed("s1")
        holding = scene.begin("/seed_session", seed_body("s2", hold=True))
        await wait_for(lambda: scene.environment.holding == 1)
        await scene.environment.sweep()
        assert scene.environment.closed == {"s1": 1, "s2": 1}
        error_of(await holding.reply(), 409)
        assert code_of(await scene.try_seed("s3"), 503) == "not_ready"
    assert scene.environment.life == ["start", "stop with 0 sessions"]


async def test_the_sweep_waits_for_no_claim(scene: Scene, claims: GatedClaims):
    claims.gate.clear()
    run = scene.begin("/seed_session", seed_body("s1"))
    await wait_for(lambda: claims.waiting == 1)
    await scene.environment.sweep()
    assert scene.environment.open_sessions == 0
    assert code_of(await run.reply(), 409) == "session_released"


async def test_the_sweep_leaves_behind_what_does_not_end(caplog: pytest.LogCaptureFixture):
    async with open_scene(context_of(cleanup_s=0.05)) as scene:
        await scene.seed("s1", stuck=1)
        await scene.environment.sweep()
        assert "release failed session='s1'" in caplog.text
        assert scene.environment.open_sessions == 1
