"""Stops of a group, and signals that it refuses: real gunicorn, real signals, stand-in roles."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import pytest

from tests.support.group import Groups
from tests.support.processes import children_of, is_alive
from tests.support.stand_ins import ended, forks, lines, obeyed, order, start, wait_line
from tests.support.waiting import wait_until

_STOPS = [signal.SIGTERM, signal.SIGINT, signal.SIGQUIT]
_REFUSED = [signal.SIGHUP, signal.SIGTTIN, signal.SIGTTOU, signal.SIGUSR2, signal.SIGWINCH]


@pytest.mark.parametrize("number", _STOPS)
@pytest.mark.parametrize("shards", [1, 2])
def test_an_idle_group_stops_cleanly(groups: Groups, shards: int, number: signal.Signals):
    group = start(groups, shards=shards)
    group.signal("arbiter", number)
    ended(group, 0)
    assert lines(group, " ERROR ") == []
    assert lines(group, " CRITICAL ") == []


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_an_idle_group_stops_cleanly_when_every_process_is_signalled(
    groups: Groups, number: signal.Signals
):
    """As a terminal does at Ctrl-C, and a supervisor that signals a whole control group."""
    group = start(groups)
    group.signalled.add(("arbiter", number))
    os.killpg(group.pids["arbiter"], number)
    ended(group, 0)


@pytest.mark.parametrize("number", _STOPS)
def test_a_stop_that_cuts_a_shard_exits_72_and_names_it(groups: Groups, number: signal.Signals):
    group = start(groups)
    order(group, "shard 1", "stuck")
    obeyed(group, "shard 1")
    group.signal("arbiter", number)
    ended(group, 72)
    (line,) = lines(group, "did not drain: ")
    assert f"shard 1 (pid {group.pids['shard 1']})" in line


def test_a_wedged_shard_is_cut_at_the_end_of_the_drain(groups: Groups):
    group = start(groups)
    group.signal("shard 0", signal.SIGSTOP)
    group.signal("arbiter", signal.SIGTERM)
    ended(group, 72)


def test_a_shard_that_is_killed_during_the_drain_was_cut(groups: Groups):
    group = start(groups, env={"SESSIONS_GRACEFUL_S": "60"})
    order(group, "shard 0", "stuck")
    obeyed(group, "shard 0")
    group.signal("arbiter", signal.SIGTERM)
    wait_until(lambda: not is_alive(group.pids["router"]), "the router drained")
    group.signal("shard 0", signal.SIGKILL)
    ended(group, 72)
    assert "shard 0 (pid" in lines(group, "did not drain: ")[0]
    assert "was killed by SIGKILL while draining" in lines(group, "did not drain: ")[0]


def test_an_exit_with_gunicorns_own_status_does_not_derail_a_drain(groups: Groups):
    """Stock gunicorn would halt a second time inside its stop and leave the others behind."""
    group = start(groups, env={"SESSIONS_GRACEFUL_S": "60"})
    for member in ("shard 0", "shard 1"):
        order(group, member, "stuck")
        obeyed(group, member)
    group.signal("arbiter", signal.SIGTERM)
    wait_until(lambda: not is_alive(group.pids["router"]), "the router drained")
    order(group, "shard 0", "_exit 3")
    wait_line(group, "did not drain: shard 0 ")
    assert is_alive(group.pids["shard 1"])
    order(group, "shard 1", "_exit 4")
    ended(group, 72)


@pytest.mark.parametrize("second", _STOPS)
def test_a_second_stop_is_quick(groups: Groups, second: signal.Signals):
    group = start(groups, env={"SESSIONS_GRACEFUL_S": "60"})
    order(group, "shard 1", "stuck")
    obeyed(group, "shard 1")
    group.signal("arbiter", signal.SIGTERM)
    wait_until(lambda: not is_alive(group.pids["router"]), "the stop has begun")
    group.signal("arbiter", second)
    ended(group, 72)


def test_a_quick_stop_does_not_wait_for_a_wedged_shard(groups: Groups):
    group = start(groups, env={"SESSIONS_GRACEFUL_S": "60"})
    group.signal("shard 0", signal.SIGSTOP)
    group.signal("arbiter", signal.SIGINT)
    ended(group, 72)


@pytest.mark.parametrize(
    ("plan", "moment"),
    [
        ("", "Listening at"),
        ("", "Booting worker"),
        ("", "shard 0 ready"),
        ("", "shard 1 ready"),
        ("shard 1=hang", "Listening at"),
        ("shard 1=hang", "shard 0 ready"),
        ("shard 0=slow", "Booting worker"),
        ("shard 0=slow", "shard 1 ready"),
    ],
)
def test_a_stop_at_any_moment_of_the_boot_is_clean(groups: Groups, plan: str, moment: str):
    group = start(groups, plan=plan, wait_ready=False)
    wait_line(group, moment)
    group.signal("arbiter", signal.SIGTERM)
    ended(group, 0)


# Signals that are refused, and one that is not


def test_a_refused_signal_changes_nothing_and_says_why(groups: Groups):
    group = start(groups)
    members = children_of(group.pids["arbiter"])
    for number in _REFUSED:
        for member in group.pids:
            group.signal(member, number)
        wait_line(group, " ERROR ", f"{number.name} refused: ")
        group.signal("arbiter", number)  # the first one has been handled when this one is
        wait_line(group, f"{number.name} refused: ", count=2)
    assert children_of(group.pids["arbiter"]) == members
    assert forks(group) == 3
    assert group.terminate() == 0


def test_usr1_makes_every_process_open_its_log_again(groups: Groups, tmp_path: Path):
    log, moved = tmp_path / "log", tmp_path / "moved"
    group = start(groups, "--error-logfile", str(log))
    log.rename(moved)
    group.signal("arbiter", signal.SIGUSR1)
    wait_until(log.exists, "the log was opened again")
    for member in ("router", "shard 0", "shard 1"):
        pid = group.pids[member]

        def is_open(pid: int = pid) -> bool:
            return str(log) in _open_files(pid)

        wait_until(is_open, f"{member} opened it again")
        assert str(moved) not in _open_files(pid)
    assert group.terminate() == 0
    assert "Shutting down" in log.read_text()


def _open_files(pid: int) -> set[str]:
    found = set()
    for entry in Path(f"/proc/{pid}/fd").iterdir():
        try:
            found.add(str(entry.readlink()))
        except FileNotFoundError:
            continue
    return found
