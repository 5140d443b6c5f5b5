"""The routes of seeded sessions: what they take, what they answer."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import httpx
import pytest

from sessions.tools.session_routes import BODY_NAMING
from tests.support.episodes import wait_for
from tests.support.rollouts import ORIGIN, error_of
from tests.support.seeded import FIELD, TOKEN_HEADER, Scene, open_scene


@pytest.fixture
async def scene() -> AsyncIterator[Scene]:
    async with open_scene() as found:
        yield found


async def test_a_seed_is_told_its_id_what_the_environment_gave_and_a_grant(scene: Scene):
    first = await scene.seed(start=3)
    assert len(first.id) == 32
    assert first.told == {
        "shard": 0,
        "seeded": 1,
        FIELD: first.id,
        "mcp": {
            "url": f"{ORIGIN}/mcp",
            "url_path": "/mcp",
            "transport": "http",
            "headers": {TOKEN_HEADER: first.token[TOKEN_HEADER]},
        },
    }
    assert (await scene.seed(start=3)).id != first.id, "without an id every seed is a new one"


async def test_a_session_is_played_graded_and_closed(scene: Scene):
    """R-T11 in one shard."""
    first = await scene.seed(start=3, expected=10)
    assert (await scene.ask("/add", {"n": 3}, first.cookie)).json()["total"] == 6
    reply = await scene.ask("/add", {"n": 4}, first.cookie)
    assert reply.json() == {"total": 10, "shard": 0}
    verdict = await scene.ask("/verify", {}, first.cookie)
    assert verdict.json() == {"reward": 1.0, "shard": 0, "calls": 2, "is_stopped": False}
    closed = await scene.ask("/close_session", None, first.cookie)
    assert closed.json() == {FIELD: first.id, "status": "closed"}


@pytest.mark.parametrize(
    ("body", "param"),
    [
        ({FIELD: 3}, FIELD),
        ({FIELD: ""}, FIELD),
        ({FIELD: "x" * 1025}, FIELD),
        ({"rollout_id": 3}, "rollout_id"),
        ({"rollout_id": ""}, "rollout_id"),
        ({"rollout_id": "r-a1"}, "rollout_id"),
        ({"rollout_id": "r", "attempt": True}, "attempt"),
        ({"rollout_id": "r", "attempt": -1}, "attempt"),
        ([], None),
    ],
)
async def test_a_seed_that_cannot_be_meant_is_refused(scene: Scene, body: object, param: str):
    error = error_of(await scene.ask("/seed_session", body), 400)
    assert error["param"] == param
    assert scene.environment.seeded == {}


async def test_a_null_id_is_none(scene: Scene):
    reply = await scene.ask("/seed_session", {FIELD: None})
    assert len(reply.json()[FIELD]) == 32


async def test_a_close_by_its_body_wins_over_the_cookie(scene: Scene):
    first, second = await scene.seed("s1"), await scene.seed("s2")
    reply = await scene.ask("/close_session", {FIELD: "s2"}, first.cookie)
    assert reply.json() == {FIELD: "s2", "status": "closed"}
    assert scene.environment.closed == {"s2": 1}
    assert (await scene.ask("/total", None, second.cookie)).status_code == 410
    assert (await scene.ask("/total", None, first.cookie)).status_code == 200


async def test_a_verdict_may_be_a_number_and_must_be_a_finite_one(scene: Scene):
    first = await scene.seed()
    assert (await scene.ask("/verify", {"reward": 0.5}, first.cookie)).json() == {"reward": 0.5}
    for odd in ("nan", "inf"):
        reply = await scene.ask("/verify", {"reward": odd}, first.cookie)
        assert error_of(reply, 500)["code"] == "internal_error"


async def test_a_client_that_leaves_its_verdict_cancels_it(scene: Scene):
    first = await scene.seed("s1")
    scene.environment.verifying = asyncio.Event()
    run = scene.begin("/verify", None, first.cookie)
    (seat,) = scene.environment._sessions._seats.values()
    await wait_for(lambda: seat.session.uses == 1)
    run.leave()
    await run.task
    assert seat.session.uses == 0


@pytest.mark.parametrize(
    ("method", "path", "status"),
    [
        ("GET", "/", 404),
        ("POST", "/", 404),
        ("POST", "/total/", 404),
        ("POST", "/tools/total", 404),
        ("POST", "/seed_session/", 404),
        ("GET", "/seed_session", 405),
        ("GET", "/total", 405),
        ("PUT", "/verify", 405),
    ],
)
async def test_what_is_no_route_is_refused_in_the_one_shape(
    scene: Scene, method: str, path: str, status: int
):
    async with httpx.AsyncClient(
        transport=httpx.ASGITransport(scene.asgi), base_url=ORIGIN
    ) as client:
        error_of(await client.request(method, path), status)


def test_the_router_reads_the_bodies_of_seeds_and_closes():
    assert BODY_NAMING.field == FIELD
    assert BODY_NAMING.seed_routes == {"/seed_session"}
    assert BODY_NAMING.close_routes == {"/close_session"}
