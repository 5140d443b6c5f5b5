"""Death, stop and refused signals of a group: real gunicorn, real signals, stand-in roles."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import pytest

from tests.support.group import Groups, RunningGroup
from tests.support.processes import children_of, is_alive, listening_address
from tests.support.stand_ins import lines, obeyed, order, start, wait_line
from tests.support.waiting import wait_until

_GONE_S = 5.0  # the goal is 1 s; a busy machine must not fail a test
_STOPS = [signal.SIGTERM, signal.SIGINT, signal.SIGQUIT]
_REFUSED = [signal.SIGHUP, signal.SIGTTIN, signal.SIGTTOU, signal.SIGUSR2, signal.SIGWINCH]


def _ended(group: RunningGroup, code: int) -> None:
    """The group ends by itself with this code, and nothing is left of it."""
    assert group.wait_exit(_GONE_S) == code, group.log()
    group.wait_gone(_GONE_S)
    assert not (group.runtime_dir / "ready.json").exists()
    assert "Traceback" not in group.log()
    assert "Unhandled exception" not in group.log()


def _cause(group: RunningGroup) -> str:
    """The one critical line of a group."""
    (line,) = [line for line in lines(group, " CRITICAL ") if "WORKER TIMEOUT" not in line]
    return line


def _forks(group: RunningGroup) -> int:
    return len(lines(group, "Booting worker"))


# Death


@pytest.mark.parametrize(
    ("number", "how"),
    [
        (signal.SIGKILL, "was killed by SIGKILL"),
        (signal.SIGSEGV, "was killed by SIGSEGV"),
        (signal.SIGINT, "exited with status 0"),
        (signal.SIGQUIT, "exited with status 0"),
    ],
)
def test_a_signal_that_ends_a_shard_takes_the_group_down(
    groups: Groups, number: signal.Signals, how: str
):
    group = start(groups)
    group.signal("shard 1", number)
    _ended(group, 70)
    assert f"shard 1 (pid {group.pids['shard 1']}) {how}" in _cause(group)
    assert _forks(group) == 3


@pytest.mark.parametrize(
    ("words", "how"),
    [
        ("_exit 0", "exited with status 0"),
        ("_exit 3", "exited with status 3"),  # gunicorn's own: a worker that cannot boot
        ("_exit 4", "exited with status 4"),  # gunicorn's own: an app that cannot be loaded
        ("exit 0", "SystemExit: 0"),
        ("return", "ended although nobody asked it to"),
    ],
)
def test_an_exit_of_a_shard_takes_the_group_down_whatever_its_status(
    groups: Groups, words: str, how: str
):
    group = start(groups)
    order(group, "shard 0", words)
    assert group.wait_exit(_GONE_S) == 70
    group.wait_gone(_GONE_S)
    assert how in _cause(group)


def test_an_error_in_a_role_is_traced_and_named(groups: Groups):
    group = start(groups)
    order(group, "shard 0", "raise")
    assert group.wait_exit(_GONE_S) == 70
    assert "Traceback" in group.log()
    assert "StandInError: told to raise in two lines" in _cause(group)


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM])
def test_the_end_of_the_router_takes_the_group_down(groups: Groups, number: signal.Signals):
    group = start(groups)
    group.signal("router", number)
    _ended(group, 70)
    assert "router (pid" in _cause(group)


@pytest.mark.parametrize("shards", [1, 2])
def test_nothing_survives_a_killed_arbiter(groups: Groups, shards: int):
    group = start(groups, shards=shards)
    group.signal("shard 0", signal.SIGSTOP)  # even a wedged member goes
    group.signal("arbiter", signal.SIGKILL)
    group.wait_gone(_GONE_S)


def test_a_folder_of_a_killed_arbiter_can_be_used_again(groups: Groups):
    first = start(groups)
    first.signal("arbiter", signal.SIGKILL)
    second = start(groups, runtime_dir=first.runtime_dir)
    assert second.terminate() == 0


def test_the_death_of_a_lone_shard_is_the_end_of_the_group(groups: Groups):
    group = start(groups, shards=1)
    group.signal("shard 0", signal.SIGKILL)
    _ended(group, 70)


def test_no_member_is_respawned_when_all_die_at_once(groups: Groups):
    group = start(groups)
    for member in ("router", "shard 0", "shard 1"):
        group.signal(member, signal.SIGKILL)
    _ended(group, 70)
    assert _forks(group) == 3
    assert "was killed by SIGKILL" in _cause(group)


def test_a_stopped_shard_is_killed_after_the_time_out(groups: Groups):
    group = start(groups)
    group.signal("shard 1", signal.SIGSTOP)
    assert group.wait_exit() == 70
    group.wait_gone(_GONE_S)
    assert "did not beat for 2 s and was killed by SIGKILL" in _cause(group)


def test_a_blocked_loop_is_shown_and_killed_after_the_time_out(groups: Groups):
    group = start(groups)
    order(group, "shard 1", "hang")
    assert group.wait_exit() == 70
    group.wait_gone(_GONE_S)
    assert "did not beat for 2 s and was killed by SIGABRT" in _cause(group)
    assert "Fatal Python error: Aborted" in group.log()
    assert "in obey" in group.log()


def test_the_router_learns_the_cause_before_it_is_killed(groups: Groups):
    """Lending rule 21."""
    group = start(groups)
    order(group, "router", "last-words")
    obeyed(group, "router")
    group.signal("shard 1", signal.SIGKILL)
    _ended(group, 70)
    (words,) = lines(group, "last words: ")
    assert words.endswith(
        f"last words: shard 1 (pid {group.pids['shard 1']}) was killed by SIGKILL"
    )


def test_a_wedged_router_cannot_hold_up_the_end(groups: Groups):
    group = start(groups)
    group.signal("router", signal.SIGSTOP)
    group.signal("shard 1", signal.SIGKILL)
    _ended(group, 70)


def test_the_cause_is_who_died_and_not_who_gave_up_because_of_it(groups: Groups):
    group = start(groups)
    group.signal("arbiter", signal.SIGSTOP)  # so that it finds both dead
    group.signal("shard 1", signal.SIGKILL)
    order(group, "router", "_exit 70")
    wait_until(lambda: not is_alive(group.pids["router"]), "the router gave up")
    wait_until(lambda: not is_alive(group.pids["shard 1"]), "the shard died")
    group.signal("arbiter", signal.SIGCONT)
    _ended(group, 70)
    assert "shard 1 (pid" in _cause(group)


def test_a_shard_that_is_told_to_stop_alone_takes_the_group_down(groups: Groups):
    group = start(groups)
    group.signal("shard 0", signal.SIGTERM)
    _ended(group, 70)
    assert "SIGTERM reached it alone" in _cause(group)


# Stop


@pytest.mark.parametrize("number", _STOPS)
@pytest.mark.parametrize("shards", [1, 2])
def test_an_idle_group_stops_cleanly(groups: Groups, shards: int, number: signal.Signals):
    group = start(groups, shards=shards)
    group.signal("arbiter", number)
    _ended(group, 0)
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
    _ended(group, 0)


@pytest.mark.parametrize("number", _STOPS)
def test_a_stop_that_cuts_a_shard_exits_72_and_names_it(groups: Groups, number: signal.Signals):
    group = start(groups)
    order(group, "shard 1", "stuck")
    obeyed(group, "shard 1")
    group.signal("arbiter", number)
    _ended(group, 72)
    (line,) = lines(group, "did not drain: ")
    assert f"shard 1 (pid {group.pids['shard 1']})" in line


def test_a_wedged_shard_is_cut_at_the_end_of_the_drain(groups: Groups):
    group = start(groups)
    group.signal("shard 0", signal.SIGSTOP)
    group.signal("arbiter", signal.SIGTERM)
    _ended(group, 72)


def test_a_shard_that_is_killed_during_the_drain_was_cut(groups: Groups):
    group = start(groups, env={"SESSIONS_GRACEFUL_S": "60"})
    order(group, "shard 0", "stuck")
    obeyed(group, "shard 0")
    group.signal("arbiter", signal.SIGTERM)
    wait_until(lambda: not is_alive(group.pids["router"]), "the router drained")
    group.signal("shard 0", signal.SIGKILL)
    _ended(group, 72)
    assert "shard 0 (pid" in lines(group, "did not drain: ")[0]
    assert "was killed by SIGKILL while draining" in lines(group, "did not drain: ")[0]


@pytest.mark.parametrize("second", _STOPS)
def test_a_second_stop_is_quick(groups: Groups, second: signal.Signals):
    group = start(groups, env={"SESSIONS_GRACEFUL_S": "60"})
    order(group, "shard 1", "stuck")
    obeyed(group, "shard 1")
    group.signal("arbiter", signal.SIGTERM)
    wait_until(lambda: not is_alive(group.pids["router"]), "the stop has begun")
    group.signal("arbiter", second)
    _ended(group, 72)


def test_two_stops_that_come_together_are_quick(groups: Groups):
    group = start(groups, env={"SESSIONS_GRACEFUL_S": "60"})
    order(group, "shard 1", "stuck")
    obeyed(group, "shard 1")
    group.signal("arbiter", signal.SIGSTOP)  # so that both wait for it
    group.signal("arbiter", signal.SIGINT)
    group.signal("arbiter", signal.SIGTERM)
    group.signal("arbiter", signal.SIGCONT)
    _ended(group, 72)


def test_a_quick_stop_does_not_wait_for_a_wedged_shard(groups: Groups):
    group = start(groups, env={"SESSIONS_GRACEFUL_S": "60"})
    group.signal("shard 0", signal.SIGSTOP)
    group.signal("arbiter", signal.SIGINT)
    _ended(group, 72)


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
    _ended(group, 0)


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
    assert _forks(group) == 3
    assert group.terminate() == 0


def test_usr1_makes_every_process_open_its_log_again(groups: Groups, tmp_path: Path):
    log, moved = tmp_path / "log", tmp_path / "moved"
    group = start(groups, "--error-logfile", str(log))
    log.rename(moved)
    group.signal("arbiter", signal.SIGUSR1)
    wait_until(log.exists, "the log was opened again")
    for member in ("router", "shard 0", "shard 1"):
        pid = group.pids[member]
        wait_until(lambda pid=pid: str(log) in _open_files(pid), f"{member} opened it again")
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


# What each process holds and is called


def test_only_the_router_and_the_arbiter_hold_the_listener(groups: Groups):
    group = start(groups)
    assert listening_address(group.pids["router"]) == group.address
    assert listening_address(group.pids["arbiter"]) == group.address
    assert listening_address(group.pids["shard 0"]) is None
    assert listening_address(group.pids["shard 1"]) is None


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
