"""A shard's parked copies on both loops: RELEASE, wishes for it, and the last loan (rules 7, 9)."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from sessions.lending.messages import Keep, Kind, LendFlag
from tests.support.apps import pattern_of
from tests.support.held_app import HeldApp
from tests.support.loans_stage import LoansStage, back, open_loans, serve
from tests.support.loops import BOTH_LOOPS, Backend, open_descriptors, turn
from tests.support.members import group_of
from tests.support.raw import request_bytes
from tests.support.waiting import wait_until_async

GET = request_bytes("GET", "/one")
BIG = request_bytes("POST", "/one", body=pattern_of("big", 100_000))


@pytest.fixture(params=BOTH_LOOPS)
def anyio_backend(request: pytest.FixtureRequest) -> Backend:
    backend: Backend = request.param
    return backend


@pytest.fixture
def app() -> HeldApp:
    return HeldApp()


@pytest.fixture
async def stage(tmp_path: Path, app: HeldApp) -> AsyncIterator[LoansStage]:
    async with open_loans(group_of(tmp_path), app) as opened:
        yield opened
        app.end_all()


@pytest.fixture
async def small(tmp_path: Path, app: HeldApp) -> AsyncIterator[LoansStage]:
    """A shard that wants to hold two parked copies at most."""
    async with open_loans(group_of(tmp_path, parked_connections=2), app) as opened:
        yield opened
        app.end_all()


# --- RELEASE (rules 9, 23)


async def test_a_release_drops_the_parked_copy_without_a_word(
    stage: LoansStage, app: HeldApp
) -> None:
    connection = stage.connection()
    before = open_descriptors()
    await serve(stage, app, connection, 0, lends_copy=True)
    assert open_descriptors() == before + 1
    stage.release()
    await wait_until_async(lambda: open_descriptors() == before, "the copy to be closed")
    assert stage.loans.parked_count == 0
    assert len(stage.router.messages) == 1


async def test_a_release_while_lent_drops_the_copy_without_a_word(
    stage: LoansStage, app: HeldApp
) -> None:
    connection = stage.connection()
    stage.lend(GET, 1, of=connection)
    call = await app.call()
    stage.release()
    assert (await call.receive())["type"] in {"http.request", "http.disconnect"}
    await wait_until_async(lambda: not stage.loans.parked_count, "the copy to be dropped")
    await call.reply(b"late")
    await turn(20)
    assert not stage.router.messages


async def test_a_release_of_nothing_is_no_error(stage: LoansStage, app: HeldApp) -> None:
    stage.release(slot=9)
    await serve(stage, app, stage.connection(), 0, lends_copy=True)


async def test_a_release_may_come_before_the_adoption_is_done(
    stage: LoansStage, app: HeldApp
) -> None:
    """A slot is known from its LEND on (rule 23); the request is then executed by nobody."""
    connection = stage.connection()
    before = open_descriptors()
    stage.lend(GET, 1, of=connection)
    stage.release()
    stage.lend(GET, 1, slot=9)
    assert (await stage.answer()).slot == 9, "the shard has read what came before"
    await wait_until_async(lambda: open_descriptors() == before, "the copy to be closed")
    await turn(20)
    assert not app.calls
    assert len(stage.router.messages) == 1
    assert stage.loans.parked_count == 0


async def test_a_slot_can_be_lent_anew_before_the_old_adoption_is_done(
    stage: LoansStage, app: HeldApp
) -> None:
    old, new = stage.connection(), stage.connection()
    stage.lend(GET, 1, of=old)
    stage.release()
    stage.lend(request_bytes("GET", "/new"), 2, of=new)
    call = await app.call()
    assert call.scope["path"] == "/new"
    await call.reply(b"new")
    assert (await new.client.read_reply()).body == b"new"
    assert await stage.answer() == back(2)
    assert stage.loans.parked_count == 1
    assert len(app.calls) == 1


async def test_a_shard_that_stops_drops_its_copies(stage: LoansStage, app: HeldApp) -> None:
    connections = [stage.connection() for _ in range(3)]
    before = open_descriptors()
    for slot, connection in enumerate(connections):
        stage.lend(GET, 1, of=connection, slot=slot)
        await (await app.call(slot)).reply(b"ok")
        await stage.answer(slot)
    assert open_descriptors() == before + 3
    stage.loans.stop()
    await wait_until_async(lambda: open_descriptors() == before, "all copies to be closed")
    assert stage.loans.parked_count == 0
    assert len(stage.router.messages) == 3


async def test_slots_do_not_mix(stage: LoansStage, app: HeldApp) -> None:
    connections = [stage.connection() for _ in range(5)]
    for slot, connection in enumerate(connections):
        stage.lend(request_bytes("GET", f"/{slot}"), 1, of=connection, slot=slot)
    await app.call(4)
    for call in reversed(app.calls):
        await call.reply(call.scope["path"].encode())
    for slot, connection in enumerate(connections):
        assert (await connection.client.read_reply()).body == b"/%d" % slot
    await stage.answer(4)
    assert sorted(message.slot for message in stage.router.messages) == list(range(5))


# --- WISH_RELEASE (rule 9)


def wishes(stage: LoansStage) -> list[int]:
    """The slots that the shard wished to be rid of, in order."""
    return [m.slot for m in stage.router.messages if m.kind == Kind.WISH_RELEASE]


async def park(stage: LoansStage, app: HeldApp, slots: list[int]) -> None:
    """One exchange on each of these slots, the first of each with a descriptor."""
    for slot in slots:
        is_new = slot not in stage.loans._exchanges
        number = len(app.calls)
        backs = sum(message.kind == Kind.BACK for message in stage.router.messages)
        stage.lend(GET, number + 1, of=stage.connection() if is_new else None, slot=slot)
        await (await app.call(number)).reply(b"ok")
        await wait_until_async(
            lambda before=backs: (  # type: ignore[misc]
                sum(m.kind == Kind.BACK for m in stage.router.messages) > before
            ),
            "the back",
        )


async def test_over_the_limit_the_copy_that_waits_the_longest_is_wished_away(
    small: LoansStage, app: HeldApp
) -> None:
    await park(small, app, [0, 1])
    assert wishes(small) == [], "the limit itself is kept"
    await park(small, app, [0, 2])
    await wait_until_async(lambda: wishes(small) == [1], "the wish")
    assert small.loans.parked_count == 3, "only the router decides"
    small.release(1)
    await wait_until_async(lambda: small.loans.parked_count == 2, "the release")
    await park(small, app, [2, 0])
    assert wishes(small) == [1]


async def test_a_wish_comes_after_the_back_of_the_copy_that_led_to_it(
    small: LoansStage, app: HeldApp
) -> None:
    await park(small, app, [0, 1, 2])
    await wait_until_async(lambda: wishes(small) == [0], "the wish")
    kinds = [message.kind for message in small.router.messages]
    assert kinds == [Kind.BACK, Kind.BACK, Kind.BACK, Kind.WISH_RELEASE]


async def test_copies_that_are_lent_or_gone_count_for_nothing(
    small: LoansStage, app: HeldApp
) -> None:
    await park(small, app, [0, 1])
    small.lend(GET, 50, slot=0)
    call = await app.call(2)
    await park(small, app, [2])
    small.release(1)
    await park(small, app, [3])
    assert wishes(small) == []
    await call.reply(b"ok")
    await wait_until_async(lambda: wishes(small) == [2], "the wish")


async def test_copies_that_were_lost_count_for_nothing(small: LoansStage, app: HeldApp) -> None:
    lost = small.connection()
    small.lend(GET, 50, of=lost, slot=9)
    await (await app.call()).reply(b"bye", headers=[(b"connection", b"close")])
    await wait_until_async(lambda: bool(small.router.messages), "the loss")
    await park(small, app, [0, 1])
    (dying,) = [exchange for exchange in small.shard.exchanges if exchange.slot == 0]
    dying.transport.abort()
    await wait_until_async(lambda: small.loans.parked_count == 1, "the copy to be forgotten")
    await park(small, app, [2])
    assert wishes(small) == []


# --- LAST (rule 7)


@pytest.mark.parametrize("parked", [False, True])
async def test_the_last_reply_says_close_and_its_copy_is_lost(
    stage: LoansStage, app: HeldApp, *, parked: bool
) -> None:
    connection = stage.connection()
    if parked:
        await serve(stage, app, connection, 0, lends_copy=True)
    flags = LendFlag.LAST | (0 if parked else LendFlag.DESCRIPTOR)
    stage.lend(GET, 2, of=None if parked else connection, flags=flags)
    await (await app.call(int(parked))).reply(b"last")
    reply = await connection.client.read_reply()
    assert (reply.body, reply.header("connection")) == (b"last", "close")
    assert await stage.answer(int(parked)) == back(2, keep=Keep.LOST)
