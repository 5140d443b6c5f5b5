"""The boot of a member: every way in which it can fail, with real gunicorn."""

from __future__ import annotations

import contextlib
import os
import queue
import signal
import tempfile
from pathlib import Path

import pytest
from gunicorn.app.base import BaseApplication
from gunicorn.config import Config
from gunicorn.glogging import Logger

from sessions.chassis.hooks import make_group
from sessions.chassis.roles import Roles
from sessions.chassis.worker import GroupWorker
from sessions.settings import Settings
from tests.support.group import Groups, RunningGroup
from tests.support.processes import is_alive
from tests.support.stand_ins import lines, start, status_of, wait_line

_DEADLINES = {"SESSIONS_BOOT_DEADLINE_S": "1"}
_RETURNED = 99


def _failed(group: RunningGroup) -> str:
    """The group ends with 71 and nothing is left; returns its one critical line."""
    assert group.wait_exit() == 71, group.log()
    group.wait_gone()
    (line,) = [line for line in lines(group, " CRITICAL ") if "WORKER TIMEOUT" not in line]
    assert line.endswith("the group goes down exit_code=71")
    return line


@pytest.mark.parametrize(
    ("plan", "found"),
    [
        ("shard 1=raise", "exited with status 71 while booting: StandInError: told to raise in"),
        ("shard 1=exit 4", "exited with status 71 while booting: SystemExit: 4;"),
        ("shard 1=exit", "exited with status 71 while booting: SystemExit;"),
        ("shard 1=_exit 0", "exited with status 0 while booting;"),
        ("shard 1=_exit 3", "exited with status 3 while booting;"),
        ("shard 1=segv", "was killed by SIGSEGV while booting;"),
        ("shard 1=fail", "exited with status 71 while booting: told to fail;"),
        ("shard 1=return", "RuntimeError: shard 1 ended although nobody asked it to;"),
        ("router=interrupt", "exited with status 71 while booting: KeyboardInterrupt;"),
    ],
)
def test_a_failed_boot_of_a_member_is_told_in_one_line(groups: Groups, plan: str, found: str):
    group = start(groups, plan=plan, wait_ready=False)
    line = _failed(group)
    assert f"{plan.partition('=')[0]} (pid " in line
    assert found in line


def test_a_lone_shard_that_cannot_boot_is_told_in_one_line(groups: Groups):
    group = start(groups, plan="shard 0=raise", shards=1, wait_ready=False)
    assert "shard 0 (pid " in _failed(group)


def test_a_refused_setting_is_told_without_a_traceback(groups: Groups):
    group = start(groups, plan="shard 0=settings", wait_ready=False)
    line = _failed(group)
    assert "while booting: SESSIONS_SOMETHING is not to our taste;" in line
    assert "Traceback" not in group.log()


@pytest.mark.parametrize(
    "plan",
    [
        "shard 0=raise;shard 1=raise",
        "shard 0=_exit 3;shard 1=_exit 4",
        "shard 0=segv;router=exit 3",
    ],
)
def test_two_members_that_fail_together_are_one_failure(groups: Groups, plan: str):
    group = start(groups, plan=plan, wait_ready=False)
    _failed(group)


def test_a_boot_that_hangs_is_shown_and_ended_at_the_deadline(groups: Groups):
    group = start(groups, plan="shard 0=hang", env=_DEADLINES, wait_ready=False)
    assert "shard 0 (pid" in (line := _failed(group))
    assert "was not ready within 1 s and exited with status 1" in line
    assert "in obey" in group.log()


def test_a_boot_that_waits_for_ever_is_ended_at_the_deadline(groups: Groups):
    group = start(groups, plan="shard 0=slow", env=_DEADLINES, wait_ready=False)
    assert "was not ready within 1 s and exited with status 1" in _failed(group)


def test_a_member_that_is_stopped_while_booting_is_ended_too(groups: Groups):
    """Its watchdog is stopped with it, so this is the arbiter's work."""
    group = start(groups, plan="shard 0=kill 19", env=_DEADLINES, wait_ready=False)
    assert "was not ready within 1 s and was killed by SIGKILL" in _failed(group)


def test_a_member_that_boots_for_longer_than_the_heartbeat_is_left_in_peace(groups: Groups):
    group = start(
        groups, plan="shard 0=doze 3", env={"SESSIONS_BOOT_DEADLINE_S": "30"}, wait_ready=False
    )
    group.wait_ready()
    assert group.terminate() == 0


@pytest.mark.skipif(os.getuid() != 0, reason="only root may become somebody else")
def test_members_of_another_user_go_with_their_arbiter_as_well(groups: Groups):
    folder = Path(tempfile.mkdtemp(prefix="ses", dir="/tmp"))
    folder.chmod(0o755)
    try:
        group = start(
            groups,
            "--user",
            "nobody",
            env={"SESSIONS_RUNTIME_DIR": str(folder / "r")},
            wait_ready=False,
        )
        wait_line(group, "router ready")
        members = [int(line.rpartition("pid=")[2]) for line in lines(group, " ready pid=")]
        owners = {Path(f"/proc/{pid}").stat().st_uid for pid in members}
        assert len(members) == 3
        assert 0 not in owners
        group.signal("arbiter", signal.SIGKILL)
        group.wait_gone(5.0)
    finally:
        for path in (folder / "r").iterdir():
            path.unlink()
        (folder / "r").rmdir()
        folder.rmdir()


class _App(BaseApplication):
    def __init__(self) -> None:
        """Nothing is loaded."""

    def load_config(self) -> None:
        """Not called."""


def _status_with(tmp_path: Path, *signals: signal.Signals) -> int:
    """How a child ends that takes its signals when these had reached it before; 99: it goes on."""
    orders: queue.SimpleQueue[int] = queue.SimpleQueue()
    for number in signals:
        orders.put(number)
    cfg = Config()
    group = make_group(Settings(), tmp_path)
    worker = GroupWorker(
        1, os.getpid(), [], _App(), 1, cfg, Logger(cfg), group=group, roles=Roles(), orders=orders
    )
    with contextlib.closing(worker.tmp):
        return status_of(worker._take_signals)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGQUIT])
def test_a_stop_that_reached_the_child_before_its_handlers_is_not_lost(
    tmp_path: Path, number: signal.Signals
):
    assert _status_with(tmp_path, signal.SIGCHLD, number) == 0


def test_other_signals_of_the_arbiter_do_not_end_a_child(tmp_path: Path):
    assert _status_with(tmp_path, signal.SIGCHLD, signal.SIGHUP) == _RETURNED


def test_a_group_leaves_no_member_when_it_fails_in_the_middle_of_its_forks(groups: Groups):
    group = start(groups, shards=4, plan="router=_exit 1", wait_ready=False)
    _failed(group)
    pids = [int(line.rpartition(": ")[2]) for line in lines(group, "Booting worker with pid: ")]
    assert len(pids) == 5
    assert not any(is_alive(pid) for pid in pids)
