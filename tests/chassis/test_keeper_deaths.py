"""Deaths in a group: real gunicorn, real signals, stand-in roles."""

from __future__ import annotations

import signal

import pytest

from tests.support.group import Groups
from tests.support.processes import is_alive
from tests.support.stand_ins import (
    GONE_S,
    cause,
    ended,
    forks,
    lines,
    obeyed,
    order,
    start,
    wait_line,
)
from tests.support.waiting import wait_until


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
    ended(group, 70)
    assert f"shard 1 (pid {group.pids['shard 1']}) {how}" in cause(group)
    assert forks(group) == 3


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
    assert group.wait_exit(GONE_S) == 70
    group.wait_gone(GONE_S)
    assert how in cause(group)


def test_an_error_in_a_role_is_traced_and_named(groups: Groups):
    group = start(groups)
    order(group, "shard 0", "raise")
    assert group.wait_exit(GONE_S) == 70
    assert "Traceback" in group.log()
    assert "StandInError: told to raise in two lines" in cause(group)


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM])
def test_the_end_of_the_router_takes_the_group_down(groups: Groups, number: signal.Signals):
    group = start(groups)
    group.signal("router", number)
    ended(group, 70)
    assert "router (pid" in cause(group)


@pytest.mark.parametrize("policy", ["halt", "continue"])
def test_a_death_before_the_group_is_whole_is_its_end_under_either_policy(
    groups: Groups, policy: str
):
    """The router would wait for that shard until the boot deadline."""
    env = {"SESSIONS_ON_SHARD_EXIT": policy}
    group = start(groups, plan="router=hang", env=env, wait_ready=False)
    wait_line(group, "shard 0 ready")
    wait_line(group, "shard 1 ready")
    order(group, "shard 1", "_exit 3")
    assert group.wait_exit(GONE_S) == 70
    group.wait_gone(GONE_S)
    assert "shard 1 (pid" in cause(group)
    assert not lines(group, "the group goes on")


@pytest.mark.parametrize("shards", [1, 2])
def test_nothing_survives_a_killed_arbiter(groups: Groups, shards: int):
    group = start(groups, shards=shards)
    group.signal("shard 0", signal.SIGSTOP)  # even a wedged member goes
    group.signal("arbiter", signal.SIGKILL)
    group.wait_gone(GONE_S)


def test_a_folder_of_a_killed_arbiter_can_be_used_again(groups: Groups):
    first = start(groups)
    first.signal("arbiter", signal.SIGKILL)
    second = start(groups, runtime_dir=first.runtime_dir)
    assert second.terminate() == 0


def test_the_death_of_a_lone_shard_is_the_end_of_the_group(groups: Groups):
    group = start(groups, shards=1)
    group.signal("shard 0", signal.SIGKILL)
    ended(group, 70)


def test_no_member_is_respawned_when_all_die_at_once(groups: Groups):
    group = start(groups)
    for member in ("router", "shard 0", "shard 1"):
        group.signal(member, signal.SIGKILL)
    ended(group, 70)
    assert forks(group) == 3
    assert "was killed by SIGKILL" in cause(group)


def test_a_stopped_shard_is_killed_after_the_time_out(groups: Groups):
    group = start(groups)
    group.signal("shard 1", signal.SIGSTOP)
    assert group.wait_exit() == 70
    group.wait_gone(GONE_S)
    assert "did not beat for 2 s and was killed by SIGKILL" in cause(group)


def test_a_blocked_loop_is_shown_and_killed_after_the_time_out(groups: Groups):
    group = start(groups)
    order(group, "shard 1", "hang")
    assert group.wait_exit() == 70
    group.wait_gone(GONE_S)
    assert "did not beat for 2 s and was killed by SIGABRT" in cause(group)
    assert "Fatal Python error: Aborted" in group.log()
    assert "in obey" in group.log()


def test_the_router_learns_the_cause_before_it_is_killed(groups: Groups):
    """Lending rule 21."""
    group = start(groups)
    order(group, "router", "last-words")
    obeyed(group, "router")
    group.signal("shard 1", signal.SIGKILL)
    ended(group, 70)
    (words,) = lines(group, "last words: ")
    assert words.endswith(
        f"last words: shard 1 (pid {group.pids['shard 1']}) was killed by SIGKILL"
    )


def test_a_wedged_router_cannot_hold_up_the_end(groups: Groups):
    group = start(groups)
    group.signal("router", signal.SIGSTOP)
    group.signal("shard 1", signal.SIGKILL)
    ended(group, 70)


def test_the_cause_is_who_died_and_not_who_gave_up_because_of_it(groups: Groups):
    group = start(groups)
    group.signal("arbiter", signal.SIGSTOP)  # so that it finds both dead
    group.signal("shard 1", signal.SIGKILL)
    order(group, "router", "_exit 70")
    wait_until(lambda: not is_alive(group.pids["router"]), "the router gave up")
    wait_until(lambda: not is_alive(group.pids["shard 1"]), "the shard died")
    group.signal("arbiter", signal.SIGCONT)
    ended(group, 70)
    assert "shard 1 (pid" in cause(group)


def test_a_shard_that_is_told_to_stop_alone_takes_the_group_down(groups: Groups):
    group = start(groups)
    group.signal("shard 0", signal.SIGTERM)
    ended(group, 70)
    assert "SIGTERM reached it alone" in cause(group)
