"""The keeper on an arbiter that never starts, and what it leaves to each process."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import pytest
from gunicorn.app.base import BaseApplication
from gunicorn.arbiter import Arbiter
from gunicorn.errors import HaltServer
from gunicorn.workers.base import Worker

from sessions.chassis.hooks import make_group
from sessions.chassis.keeper import Keeper
from sessions.chassis.roles import Roles
from sessions.chassis.rundir import open_runtime_dir
from sessions.settings import Settings
from tests.support.group import Groups
from tests.support.processes import listening_address
from tests.support.stand_ins import lines, start, status_of


class _App(BaseApplication):
    def load_config(self) -> None:
        """Gunicorn's defaults."""


@pytest.fixture
def server(tmp_path: Path) -> Arbiter:
    """A kept arbiter of two shards and a router, in this process, not started."""
    server = Arbiter(_App())
    server.pid = os.getpid()
    runtime_dir = open_runtime_dir(str(tmp_path / "r"), os.getuid(), os.getgid())
    group = make_group(Settings(shards=2), runtime_dir.path)
    Keeper(server, group, Roles(), runtime_dir).install()
    return server


def _worker(server: Arbiter, age: int) -> Worker:
    assert server.log is not None
    worker = server.worker_class(age, server.pid, [], server.app, 1, server.cfg, server.log)
    worker.tmp.close()
    return worker


def test_the_members_of_a_group_may_be_forked(server: Arbiter):
    for age in (1, 2, 3):
        server.cfg.pre_fork(server, _worker(server, age))


def test_a_fork_too_many_halts_the_group(server: Arbiter):
    with pytest.raises(HaltServer) as halted:
        server.cfg.pre_fork(server, _worker(server, 4))
    assert halted.value.exit_status == 70


def test_a_fork_too_many_during_a_stop_is_the_stop(server: Arbiter):
    """Members may be gone before gunicorn handles the signal that ended them."""
    server.signal(signal.SIGINT, None)
    with pytest.raises(StopIteration):
        server.cfg.pre_fork(server, _worker(server, 4))


def test_a_death_that_the_keeper_did_not_see_is_fatal_all_the_same(server: Arbiter):
    worker = _worker(server, 2)
    worker.pid = "71"
    with pytest.raises(HaltServer) as halted:
        server.cfg.child_exit(server, worker)
    assert (halted.value.reason, halted.value.exit_status) == (
        "shard 0 (pid 71) ended while booting",
        71,
    )


def test_a_second_stop_signal_becomes_the_one_that_hurries(server: Arbiter):
    for _ in range(3):
        server.signal(signal.SIGTERM, None)
    assert [server.SIG_QUEUE.get_nowait() for _ in range(3)] == [
        signal.SIGTERM,
        signal.SIGINT,
        signal.SIGINT,
    ]


@pytest.mark.parametrize(("stops", "graceful"), [(1, []), (2, [False])])
def test_two_stops_that_come_together_are_quick(server: Arbiter, stops: int, graceful: list[bool]):
    """Gunicorn takes both from its queue at once and handles the first alone."""
    found: list[bool] = []
    vars(server)["stop"] = lambda *, graceful: found.append(graceful)
    for _ in range(stops):
        server.signal(signal.SIGTERM, None)
    with pytest.raises(StopIteration):
        server.handle_term()
    assert found == graceful


def test_a_death_after_the_signal_of_a_stop_is_part_of_the_stop(server: Arbiter):
    """A terminal signals members and arbiter at once; some members are gone first."""
    worker = _worker(server, 1)
    worker.pid = "71"
    server.signal(signal.SIGINT, None)
    server.cfg.child_exit(server, worker)


def test_deaths_are_not_queued_before_a_second_stop_signal(server: Arbiter):
    server.signal_chld(signal.SIGCHLD, None)
    server.signal(signal.SIGTERM, None)
    server.signal_chld(signal.SIGCHLD, None)
    server.signal(signal.SIGTERM, None)
    found = [server.SIG_QUEUE.get_nowait() for _ in range(3)]
    assert found == [signal.SIGCHLD, signal.SIGTERM, signal.SIGINT]
    assert server.SIG_QUEUE.empty()


def test_a_child_that_still_has_the_handlers_of_the_arbiter_stops_nobody_else(server: Arbiter):
    def child() -> None:
        server.signal(signal.SIGTERM, None)
        with pytest.raises(HaltServer):  # it would be StopIteration if a stop had been noted
            server.cfg.pre_fork(server, _worker(server, 4))

    assert status_of(child) == 99


# What each process holds and is called


def test_only_the_router_and_the_arbiter_hold_the_listener(groups: Groups):
    group = start(groups)
    assert listening_address(group.pids["router"]) == group.address
    assert listening_address(group.pids["arbiter"]) == group.address
    assert listening_address(group.pids["shard 0"]) is None
    assert listening_address(group.pids["shard 1"]) is None


def test_a_child_of_the_router_would_not_get_the_listener(groups: Groups):
    group = start(groups, shards=1)
    folder = Path(f"/proc/{group.pids['shard 0']}")
    listeners = [
        entry.name for entry in (folder / "fd").iterdir() if "socket:" in str(entry.readlink())
    ]
    flags = [
        int(line.split()[1], 8)
        for name in listeners
        for line in (folder / "fdinfo" / name).read_text().splitlines()
        if line.startswith("flags:")
    ]
    assert flags
    assert all(value & os.O_CLOEXEC for value in flags)


def test_every_process_is_titled_by_its_role(groups: Groups):
    group = start(groups)
    titles = {
        member: Path(f"/proc/{pid}/cmdline").read_bytes().rstrip(b"\0").decode()
        for member, pid in group.pids.items()
    }
    assert titles == {member: f"sessile: {member}" for member in group.pids}


def test_every_line_names_the_role_of_its_process(groups: Groups):
    group = start(groups)
    assert group.terminate() == 0
    for member, pid in group.pids.items():
        assert lines(group, f" sessile {member} [{pid}] ")
