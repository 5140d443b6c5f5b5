"""The life of a member, lived in a forked child with real signals on uvloop."""

from __future__ import annotations

import asyncio
import faulthandler
import os
import signal
from collections.abc import Awaitable, Callable

import pytest
import uvloop

from sessions.chassis import life as life_module
from sessions.chassis.life import MemberLife
from sessions.chassis.member import Member, Role
from sessions.chassis.reason import SharedReason
from sessions.chassis.verdicts import ExitCode
from sessions.lending.board import Board, Phase, Row
from sessions.lending.group import Life
from tests.support.stand_ins import status_of
from tests.support.waiting import wait_until_async

SHARD = Member(role=Role.SHARD, index=1)
ROUTER = Member(role=Role.ROUTER)
LONE = Member(role=Role.LONE_SHARD)
RETURNED = 99


class Stage:
    """Where one life is lived; what it wrote is read afterwards."""

    def __init__(self, member: Member) -> None:
        self.member = member
        self.board = Board(2)
        self.reason = SharedReason()
        self.notified = 0

    @property
    def row(self) -> Row:
        return self.board.read_row(self.member.row)

    def notify(self) -> None:
        self.notified += 1

    def live(self, act: Callable[[MemberLife], Awaitable[object]]) -> int:
        """Live in a child; returns how it ended, 99 if `act` returned."""

        async def begin() -> None:
            await act(MemberLife(self.member, self.board, self.reason, self.notify))

        def child() -> None:
            with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
                runner.run(begin())

        return status_of(child)


@pytest.fixture
def shard() -> Stage:
    return Stage(SHARD)


@pytest.fixture
def quick_end(monkeypatch: pytest.MonkeyPatch) -> None:
    """Little time for a role that must hurry."""
    monkeypatch.setattr(life_module, "QUICK_END_S", 0.2)


def _send(number: signal.Signals) -> None:
    os.kill(os.getpid(), number)


async def _forever() -> None:
    await asyncio.Event().wait()


def test_a_member_life_is_the_life_that_roles_are_given(shard: Stage):
    life: Life = MemberLife(SHARD, shard.board, shard.reason, shard.notify)
    assert not life.stop_requested.is_set()


def test_a_life_begins_in_boot(shard: Stage):
    life = MemberLife(SHARD, shard.board, shard.reason, shard.notify)
    assert (life.phase, shard.row.phase, shard.row.pid) == (
        Phase.BOOTING,
        Phase.BOOTING,
        os.getpid(),
    )


def test_a_beat_publishes_the_counters_and_tells_the_arbiter_only_when_ready(shard: Stage):
    async def act(life: MemberLife) -> None:
        life.beat(sessions=3, requests=4)
        assert shard.notified == 0
        life.on_ready()
        assert shard.notified == 1
        life.beat(sessions=5, requests=6)
        assert shard.notified == 2

    assert shard.live(act) == RETURNED
    assert (shard.row.sessions, shard.row.requests) == (5, 6)
    assert shard.row.beat_age_s < 60


def test_readiness_ends_the_boot_deadline(shard: Stage):
    async def act(life: MemberLife) -> None:
        faulthandler.dump_traceback_later(0.2, exit=True)
        life.on_ready()
        await asyncio.sleep(0.4)  # the deadline passes: this is the time that is tested

    assert shard.live(act) == RETURNED
    assert shard.row.phase is Phase.READY


def test_readiness_does_not_take_back_a_drain(shard: Stage):
    async def act(life: MemberLife) -> None:
        life.on_drained()
        life.on_ready()

    assert shard.live(act) == RETURNED
    assert shard.row.phase is Phase.DRAINED


def test_a_stop_of_the_group_is_a_request_to_the_role(shard: Stage):
    async def act(life: MemberLife) -> None:
        life.on_ready()
        shard.board.set_draining()
        _send(signal.SIGTERM)
        await life.stop_requested.wait()
        assert life.phase is Phase.DRAINING
        _send(signal.SIGTERM)  # a supervisor and the arbiter may both send it
        await asyncio.sleep(0)
        life.on_drained()
        life.close()

    assert shard.live(act) == RETURNED
    assert shard.row.phase is Phase.DRAINED


@pytest.mark.parametrize("member", [ROUTER, LONE])
def test_the_owner_of_the_listener_says_that_the_group_drains(member: Member):
    stage = Stage(member)

    async def act(life: MemberLife) -> None:
        life.on_ready()
        _send(signal.SIGTERM)
        await life.stop_requested.wait()

    assert stage.live(act) == RETURNED
    assert stage.board.draining
    assert stage.row.phase is Phase.DRAINING


def test_a_router_that_is_asked_before_it_is_ready_stays_in_boot():
    stage = Stage(ROUTER)

    async def act(life: MemberLife) -> None:
        life.heed_signals()
        _send(signal.SIGTERM)
        await life.stop_requested.wait()

    assert stage.live(act) == RETURNED
    assert stage.row.phase is Phase.BOOTING


def test_a_shard_that_learns_of_the_drain_a_little_later_is_not_alone(shard: Stage):
    async def act(life: MemberLife) -> None:
        life.on_ready()
        _send(signal.SIGTERM)
        await asyncio.sleep(0.1)  # longer than the handler takes: it must still wait
        assert not life.stop_requested.is_set()
        shard.board.set_draining()
        await life.stop_requested.wait()

    assert shard.live(act) == RETURNED


def test_a_shard_that_is_stopped_alone_takes_the_group_with_it(
    shard: Stage, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(life_module, "ALONE_S", 0.1)

    async def act(life: MemberLife) -> None:
        life.on_ready()
        _send(signal.SIGTERM)
        await _forever()

    assert shard.live(act) == ExitCode.WORKER_DIED
    assert shard.reason.text.startswith("SIGTERM reached it alone")
    assert shard.row.phase is Phase.READY


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGQUIT])
@pytest.mark.parametrize("member", [ROUTER, LONE])
def test_a_quick_end_comes_at_once_if_nothing_is_in_flight(member: Member, number: signal.Signals):
    stage = Stage(member)

    async def act(life: MemberLife) -> None:
        life.watch_idle(lambda: True)
        life.on_ready()
        _send(number)
        assert not life.hurry_requested.is_set(), "it lives on"

    assert stage.live(act) == 0
    assert stage.row.phase is Phase.DRAINED
    assert stage.board.draining, "its shards take the end of their channels for its death"


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGQUIT])
@pytest.mark.parametrize("member", [SHARD, ROUTER, LONE])
def test_a_quick_end_with_exchanges_in_flight_is_a_request_to_the_role(
    member: Member, number: signal.Signals
):
    stage = Stage(member)

    async def act(life: MemberLife) -> None:
        life.watch_idle(lambda: False)
        life.on_ready()
        _send(number)
        await life.hurry_requested.wait()
        assert life.stop_requested.is_set()
        life.end_cut("requests cut: 2")

    assert stage.live(act) == 0
    assert stage.row.phase is Phase.READY
    assert stage.reason.text == "requests cut: 2"


def test_a_shard_that_is_idle_waits_for_its_router_which_answers_for_others(shard: Stage):
    async def act(life: MemberLife) -> None:
        life.watch_idle(lambda: True)
        life.on_ready()
        _send(signal.SIGQUIT)
        await life.hurry_requested.wait()
        life.close()

    assert shard.live(act) == RETURNED
    assert shard.row.phase is Phase.DRAINED


@pytest.mark.parametrize(("idle", "phase"), [(True, Phase.DRAINED), (False, Phase.READY)])
def test_a_quick_end_does_not_wait_for_long(
    shard: Stage, quick_end: None, phase: Phase, *, idle: bool
):
    async def act(life: MemberLife) -> None:
        life.watch_idle(lambda: idle)
        life.on_ready()
        _send(signal.SIGINT)
        await _forever()

    assert shard.live(act) == 0
    assert shard.row.phase is phase


def test_more_signals_give_no_more_time(shard: Stage, quick_end: None):
    async def act(life: MemberLife) -> None:
        life.on_ready()
        for _ in range(100):
            _send(signal.SIGINT)
            await asyncio.sleep(0.02)

    assert shard.live(act) == 0


@pytest.mark.parametrize("again", [signal.SIGQUIT, signal.SIGALRM])
def test_a_member_that_is_idle_because_it_has_cut_has_not_drained(again: signal.Signals):
    """Ctrl-C reaches all, and then the arbiter sends its own word."""
    stage = Stage(LONE)
    idle = False

    async def act(life: MemberLife) -> None:
        nonlocal idle
        life.watch_idle(lambda: idle)
        life.on_ready()
        _send(signal.SIGINT)
        await life.hurry_requested.wait()
        idle = True
        _send(again)
        life.end_cut("requests cut: 1")

    assert stage.live(act) == 0
    assert stage.row.phase is Phase.READY
    assert stage.reason.text == ("requests cut: 1" if again is signal.SIGQUIT else "")


def test_a_quick_end_of_a_role_that_never_said_whether_it_is_idle_is_a_cut(
    shard: Stage, quick_end: None
):
    async def act(life: MemberLife) -> None:
        life.on_ready()
        _send(signal.SIGINT)
        await _forever()

    assert shard.live(act) == 0
    assert shard.row.phase is Phase.READY


def test_a_drained_member_ends_at_once(shard: Stage):
    async def act(life: MemberLife) -> None:
        life.on_ready()
        life.on_drained()
        _send(signal.SIGINT)

    assert shard.live(act) == 0
    assert shard.row.phase is Phase.DRAINED


def test_a_quick_end_comes_in_the_middle_of_a_step_of_the_loop(shard: Stage, quick_end: None):
    async def act(life: MemberLife) -> None:
        life.on_ready()
        _send(signal.SIGQUIT)
        while True:  # the loop does not turn any more
            pass

    assert shard.live(act) == 0


def test_a_quick_end_in_boot_leaves_the_phase_alone():
    stage = Stage(ROUTER)

    async def act(life: MemberLife) -> None:
        life.watch_idle(lambda: True)
        life.heed_signals()
        _send(signal.SIGINT)
        await _forever()

    assert stage.live(act) == 0
    assert stage.row.phase is Phase.BOOTING


def test_a_stop_in_boot_ends_a_shard_on_the_spot(shard: Stage):
    async def act(_life: MemberLife) -> None:
        _send(signal.SIGTERM)
        await _forever()

    assert shard.live(act) == -signal.SIGTERM


def test_a_failed_boot_leaves_its_reason(shard: Stage):
    async def act(life: MemberLife) -> None:
        life.fail_boot("no tokenizer")

    assert shard.live(act) == ExitCode.BOOT_FAILED
    assert shard.reason.text == "no tokenizer"


def test_a_role_that_fails_after_it_was_ready_has_died(shard: Stage):
    async def act(life: MemberLife) -> None:
        life.on_ready()
        life.fail_boot("too late")

    assert shard.live(act) == ExitCode.WORKER_DIED


def test_a_role_that_returns_unasked_is_an_error(shard: Stage):
    life = MemberLife(SHARD, shard.board, shard.reason, shard.notify)
    with pytest.raises(RuntimeError, match="shard 1 ended although nobody asked it to"):
        life.close()


def test_a_role_that_returns_idle_has_drained(shard: Stage):
    life = MemberLife(SHARD, shard.board, shard.reason, shard.notify)
    life.stop_requested.set()
    life.watch_idle(lambda: True)
    life.close()
    assert shard.row.phase is Phase.DRAINED


def test_a_role_that_returns_without_a_word_has_not_drained(shard: Stage):
    life = MemberLife(SHARD, shard.board, shard.reason, shard.notify)
    life.stop_requested.set()
    life.close()
    assert shard.row.phase is Phase.BOOTING


async def test_waiting_for_the_drain_does_not_stop_the_loop(shard: Stage):
    life = MemberLife(SHARD, shard.board, shard.reason, shard.notify)
    life._on_term()
    turned = asyncio.get_running_loop().create_future()
    asyncio.get_running_loop().call_soon(turned.set_result, None)
    await turned
    shard.board.set_draining()
    await wait_until_async(life.stop_requested.is_set, "the drain is seen")
