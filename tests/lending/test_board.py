"""The board: rows of their own, a first cause that stays, and a past that does not come back."""

from __future__ import annotations

import os
import time

import pytest

from sessions.lending.board import ROUTER_ROW, Board, Phase


@pytest.mark.parametrize("phase", Phase)
def test_a_row_tells_phase_and_pid(phase: Phase) -> None:
    board = Board(2)
    board.set_phase(1, phase, 4321)
    row = board.read_row(1)
    assert (row.phase, row.pid) == (phase, 4321)


def test_rows_do_not_touch_each_other() -> None:
    board = Board(3)
    rows = [ROUTER_ROW, *(board.row_of_shard(index) for index in range(3))]
    assert rows == [0, 1, 2, 3]
    for row in rows:
        board.set_phase(row, Phase.READY, 100 + row)
        board.beat(row, sessions=10 + row, requests=20 + row)
    assert [board.read_row(row).pid for row in rows] == [100, 101, 102, 103]
    assert [board.read_row(row).sessions for row in rows] == [10, 11, 12, 13]
    assert [board.read_row(row).requests for row in rows] == [20, 21, 22, 23]
    assert not board.draining
    assert board.cause == ""


def test_a_member_that_never_beat_has_no_beat_age() -> None:
    assert Board(1).read_row(0).beat_age_s == float("inf")


def test_the_beat_age_grows_from_the_last_beat(monkeypatch: pytest.MonkeyPatch) -> None:
    board = Board(1)
    board.beat(1)
    assert 0 <= board.read_row(1).beat_age_s < 60
    now = time.monotonic_ns()
    monkeypatch.setattr(time, "monotonic_ns", lambda: now)
    board.beat(1)
    assert board.read_row(1).beat_age_s == 0
    monkeypatch.setattr(time, "monotonic_ns", lambda: now + 2_500_000_000)
    assert board.read_row(1).beat_age_s == 2.5


def test_a_phase_can_change_without_losing_the_counters() -> None:
    board = Board(1)
    board.beat(1, sessions=3, requests=8)
    board.set_phase(1, Phase.DRAINING, 5)
    row = board.read_row(1)
    assert (row.phase, row.sessions, row.requests) == (Phase.DRAINING, 3, 8)


def test_the_flags_are_set_apart_and_stay() -> None:
    board = Board(3)
    assert not board.goes_on
    board.set_goes_on()
    board.set_goes_on()
    assert (board.goes_on, board.draining) == (True, False)
    board.set_draining()
    assert (board.goes_on, board.draining) == (True, True)
    assert [board.read_row(row).phase for row in range(4)] == [Phase.FORKED] * 4


def test_draining_is_said_once_and_stays() -> None:
    board = Board(2)
    board.set_draining()
    board.set_draining()
    assert board.draining
    assert board.cause == ""
    assert board.read_row(2).phase is Phase.FORKED


def test_the_first_cause_wins() -> None:
    board = Board(1)
    assert board.cause == ""
    board.set_cause("shard 1 died of signal 9")
    board.set_cause("router died")
    assert board.cause == "shard 1 died of signal 9"
    assert not board.draining


def test_an_empty_cause_is_none() -> None:
    board = Board(1)
    board.set_cause("")
    board.set_cause("router died")
    assert board.cause == "router died"


@pytest.mark.parametrize("size", [1022, 1023, 1024, 5000])
def test_a_long_cause_is_cut(size: int) -> None:
    board = Board(1)
    board.set_cause("x" * size)
    assert board.cause == "x" * min(size, 1023)


def test_a_cause_that_is_cut_inside_of_a_character_can_be_read() -> None:
    board = Board(1)
    board.set_cause("é" * 600)
    assert board.cause == "é" * 511 + "\N{REPLACEMENT CHARACTER}"


@pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning")
def test_a_child_writes_and_its_parent_reads() -> None:
    board = Board(2)
    pid = os.fork()
    if pid == 0:
        board.set_phase(board.row_of_shard(1), Phase.READY, 77)
        board.set_cause("seen by the child")
        board.set_draining()
        os._exit(0)
    os.waitpid(pid, 0)
    assert board.read_row(2).phase is Phase.READY
    assert board.cause == "seen by the child"
    assert board.draining
