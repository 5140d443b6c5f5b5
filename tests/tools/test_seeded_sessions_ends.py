"""How sessions end: closes that come twice, at once, early, or fail."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator

import httpx
import pytest

from sessions.tools.seeded_session import SeededSession
from sessions.tools.session_cookie import SessionCookie
from tests.support.episodes import context_of, wait_for
from tests.support.rollouts import SECRET, error_of
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


# --- closes


async def test_a_close_that_comes_again_says_so(scene: Scene):
    first = await scene.seed("s1")
    told = [(await scene.close("s1")).json() for _ in range(3)]
    assert [reply["status"] for reply in told] == ["closed", "already_closed", "already_closed"]
    assert told[0][FIELD] == "s1"
    assert scene.environment.closed == {"s1": 1}
    reply = await scene.ask("/total", None, first.cookie)
    assert code_of(reply, 410) == "session_not_open"
    assert "it was closed, not running on this server" in reply.json()["error"]["message"]


async def test_closes_at_once_release_once(scene: Scene):
    await scene.seed("s2")
    runs = [scene.begin("/close_session", {FIELD: "s2"}) for _ in range(5)]
    statuses = sorted([(await run.reply()).json()["status"] for run in runs])
    assert statuses == ["already_closed"] * 4 + ["closed"]
    assert scene.environment.closed == {"s2": 1}


async def test_what_never_was_seeded_is_closed_and_cannot_be_seeded_later(
    scene: Scene, claims: GatedClaims
):
    for _ in range(2):
        reply = await scene.close("s1")
        assert (reply.status_code, reply.json()["status"]) == (200, "never_seeded")
    assert claims.holds("s1"), "so that a seed that comes late finds it"
    late = await scene.try_seed("s1")
    assert code_of(late, 409) == "session_released"
    assert scene.environment.seeded == {}


async def test_a_seed_during_the_close_of_what_never_was_seeded_is_refused(
    scene: Scene, claims: GatedClaims
):
    claims.gate.clear()
    closes = [scene.begin("/close_session", {FIELD: "s1"}) for _ in range(3)]
    await wait_for(lambda: claims.waiting == 1)
    assert code_of(await scene.try_seed("s1"), 409) == "session_released"
    claims.gate.set()
    for close in closes:
        assert (await close.reply()).json()["status"] == "never_seeded"


async def test_a_close_during_the_seed_ends_it(scene: Scene, claims: GatedClaims):
    run = scene.begin("/seed_session", seed_body("s1", hold=True))
    await wait_for(lambda: scene.environment.holding == 1)
    assert (await scene.close("s1")).json()["status"] == "closed"
    assert code_of(await run.reply(), 409) == "session_released"
    assert scene.environment.closed == {"s1": 1}
    assert code_of(await scene.try_seed("s1", hold=True), 409) == "session_released"


async def test_a_close_during_the_claim_of_a_seed_ends_it(scene: Scene, claims: GatedClaims):
    claims.gate.clear()
    run = scene.begin("/seed_session", seed_body("s1"))
    await wait_for(lambda: claims.waiting == 1)
    close = scene.begin("/close_session", {FIELD: "s1"})
    assert code_of(await run.reply(), 409) == "session_released"
    claims.gate.set()
    assert (await close.reply()).json()["status"] == "closed"
    assert (scene.environment.seeded, scene.environment.closed) == ({}, {})
    assert code_of(await scene.try_seed("s1"), 409) == "session_released"
    assert scene.environment.open_sessions == 0


async def test_a_close_that_comes_while_a_seed_fails_releases_once(
    scene: Scene, claims: GatedClaims
):
    environment = scene.environment
    release = environment.close

    async def overtaken(session: SeededSession) -> None:
        await release(session)
        environment._sessions.abandon(session.id)

    environment.close = overtaken  # type: ignore[method-assign]
    assert code_of(await scene.try_seed("s1", fail=True), 409) == "session_released"
    await wait_for(lambda: not environment.open_sessions)
    assert environment.closed == {"s1": 1}
    assert claims.holds("s1")
    assert code_of(await scene.try_seed("s1"), 409) == "session_released"


async def test_a_seed_that_cancels_itself_is_a_fault_and_leaves_nothing(
    scene: Scene, claims: GatedClaims
):
    async def cancelled(_request: object, _session: object) -> dict[str, int]:
        raise asyncio.CancelledError

    scene.environment.seed = cancelled  # type: ignore[method-assign, assignment]
    scene.environment.close = no_release  # type: ignore[method-assign, assignment]
    assert code_of(await scene.try_seed("s1"), 500) == "internal_error"
    assert (scene.environment.open_sessions, claims.count) == (0, 0)


async def test_a_seed_that_tells_what_no_reply_can_hold_leaves_nothing(
    scene: Scene, claims: GatedClaims
):
    async def odd(_request: object, _session: object) -> dict[str, str]:
        return {"task": "\ud800"}

    scene.environment.seed = odd  # type: ignore[method-assign, assignment]
    scene.environment.close = no_release  # type: ignore[method-assign, assignment]
    assert code_of(await scene.try_seed("s1"), 500) == "internal_error"
    assert (scene.environment.open_sessions, claims.count) == (0, 0)


@pytest.mark.parametrize("fault", [SystemExit(3), asyncio.CancelledError()], ids=["exit", "cancel"])
async def test_a_release_that_raises_no_exception_has_failed_as_any_other(
    scene: Scene, fault: BaseException
):
    faults = [fault]

    async def broken(_session: object) -> None:
        if faults:
            raise faults.pop()

    scene.environment.close = broken  # type: ignore[method-assign, assignment]
    await scene.seed("s1")
    assert code_of(await scene.close("s1"), 500) == "release_failed"
    assert (await scene.close("s1")).json()["status"] == "closed"


async def no_release(_session: object) -> None:
    pass


async def test_a_seed_that_does_not_end_fails_the_close_until_it_does(claims: GatedClaims):
    async with open_scene(context_of(claims=claims, cleanup_s=0.05)) as scene:
        go_on = asyncio.Event()

        async def stubborn(_request: object, session: SeededSession) -> dict[str, int]:
            while not go_on.is_set():
                with contextlib.suppress(asyncio.CancelledError):
                    await go_on.wait()
            return {}

        scene.environment.seed = stubborn  # type: ignore[method-assign, assignment]
        scene.environment.close = no_release  # type: ignore[method-assign, assignment]
        run = scene.begin("/seed_session", seed_body("s1"))
        await wait_for(lambda: scene.environment.open_sessions == 1)
        assert code_of(await scene.close("s1"), 500) == "release_failed"
        await scene.environment.sweep()
        go_on.set()
        assert code_of(await run.reply(), 409) == "session_released"
        assert (await scene.close("s1")).json()["status"] == "closed"


async def test_a_session_that_is_being_seeded_is_not_open_yet(scene: Scene):
    run = scene.begin("/seed_session", seed_body("s1", hold=True))
    await wait_for(lambda: scene.environment.holding == 1)
    header = SessionCookie("CounterResources", SECRET).header_of("s1").decode()
    reply = await scene.ask("/total", None, {"cookie": header.partition(";")[0]})
    assert code_of(reply, 410) == "session_not_open"
    assert "it was not seeded" in reply.json()["error"]["message"]
    scene.environment.go_on.set()
    seeding_of(await run.reply())


async def test_a_close_ends_the_calls_that_run(scene: Scene):
    first = await scene.seed("s1")
    scene.environment.verifying = asyncio.Event()
    runs = [scene.begin(path, None, first.cookie) for path in ("/wait", "/verify")]
    (session,) = [seat.session for seat in scene.environment._sessions._seats.values()]
    await wait_for(lambda: session.uses == 2)
    assert (await scene.close("s1")).json()["status"] == "closed"
    for run in runs:
        assert code_of(await run.reply(), 410) == "session_not_open"


async def test_a_release_that_fails_is_told_and_tried_again_by_the_next_close(scene: Scene):
    first = await scene.seed("s1", stuck=2)
    for _ in range(2):
        reply = await scene.close("s1")
        assert code_of(reply, 500) == "release_failed"
        assert reply.headers["x-should-retry"] == "true"
        assert "disk" not in reply.text
        gone = await scene.ask("/total", None, first.cookie)
        assert code_of(gone, 410) == "session_not_open"
        assert "it is being closed" in gone.json()["error"]["message"]
        assert code_of(await scene.try_seed("s1", stuck=2), 409) == "session_released"
        other = await scene.try_seed("s1", stuck=1)  # the payload does not matter any more
        assert code_of(other, 409) == "session_released"
    assert (await scene.close("s1")).json()["status"] == "closed"
    assert (await scene.close("s1")).json()["status"] == "already_closed"
    assert scene.environment.closed == {"s1": 1}


@pytest.mark.parametrize("is_stubborn", [False, True])
async def test_a_release_that_does_not_end_in_its_budget_failed(
    claims: GatedClaims, *, is_stubborn: bool
):
    async with open_scene(context_of(claims=claims, cleanup_s=0.05)) as scene:
        await scene.seed("s1")
        release, stuck = scene.environment.close, asyncio.Event()

        async def never(_session: object) -> None:
            with contextlib.suppress(*[asyncio.CancelledError] * is_stubborn):
                await stuck.wait()
            await stuck.wait()

        scene.environment.close = never  # type: ignore[method-assign, assignment]
        assert code_of(await scene.close("s1"), 500) == "release_failed"
        scene.environment.close = release  # type: ignore[method-assign]
        if is_stubborn:  # the first is still there, and never are two
            assert code_of(await scene.close("s1"), 500) == "release_failed"
        assert (await scene.close("s1")).json()["status"] == "closed"
        stuck.set()


async def test_so_many_ends_are_remembered_and_no_more(scene: Scene, claims: GatedClaims):
    for number in range(10):
        await scene.seed(f"s{number}")
        await scene.close(f"s{number}")
    assert claims.count == 4
    assert [(await scene.close(f"s{n}")).json()["status"] for n in (9, 5)] == [
        "already_closed",
        "never_seeded",
    ]
    assert claims.count == 4
