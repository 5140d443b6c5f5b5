"""The group harness, tried on a stand-in configuration."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.group import GroupError, Groups, open_groups
from tests.support.processes import is_alive
from tests.support.raw import RawConnection, request_bytes

CONF = Path(__file__).with_name("stand_in_conf.py")


def test_a_group_has_address_pids_and_log_when_ready():
    with open_groups() as groups:
        group = groups.start(conf=CONF)
        assert set(group.pids) == {"arbiter", "router", "shard 0"}
        assert all(is_alive(pid) for pid in group.pids.values())
        with RawConnection(group.address) as connection:
            assert connection.ask(request_bytes("GET", "/")).body == b"ok"
        assert group.url == f"http://127.0.0.1:{group.address[1]}"
        assert "Listening at" in group.log()
        assert group.terminate() == 0
        assert not any(is_alive(pid) for pid in group.pids.values())


def test_what_a_test_leaves_running_is_stopped():
    with open_groups() as groups:
        group = groups.start(conf=CONF)
    assert not any(is_alive(pid) for pid in group.pids.values())
    assert not group.runtime_dir.parent.exists()


def test_a_group_that_dies_before_it_is_ready_fails_with_its_log():
    with (
        open_groups() as groups,
        pytest.raises(GroupError, match=r"exit code 1(?s:.*)told to fail"),
    ):
        groups.start(conf=CONF, env={"STAND_IN": "fail"})


def test_a_group_that_is_never_ready_fails_at_the_deadline_but_listens():
    with open_groups() as groups:
        group = groups.start(conf=CONF, env={"STAND_IN": "never-ready"}, wait_ready=False)
        group.wait_listening()
        with RawConnection(group.address) as connection:
            assert connection.ask(request_bytes("GET", "/")).status == 200
        with pytest.raises(GroupError, match="was not ready within"):
            group.wait_ready(0.05)


def test_the_fixture_fails_when_a_socket_file_is_left():
    with (
        pytest.raises(GroupError, match=r"socket files left: \['left.sock'\]"),
        open_groups() as groups,
    ):
        groups.start(conf=CONF, env={"STAND_IN": "socket"})


def test_a_socket_file_may_stay_when_the_arbiter_was_killed():
    with open_groups() as groups:
        group = groups.start(conf=CONF, env={"STAND_IN": "socket"})
        group.signal("arbiter", signal.SIGKILL)
        assert group.wait_exit() == -signal.SIGKILL
        group.wait_gone()


def test_the_fixture_kills_processes_that_are_left_and_fails():
    pids: dict[str, int] = {}

    def leave_the_router() -> None:
        with open_groups() as groups:
            group = groups.start(conf=CONF, env={"STAND_IN": "halt"})
            pids.update(group.pids)
            # A sync worker notices the arbiter's end when it next wakes; a stopped one never.
            group.signal("router", signal.SIGSTOP)
            group.signal("shard 0", signal.SIGKILL)
            assert group.wait_exit() == 70

    with pytest.raises(GroupError, match="processes left"):
        leave_the_router()
    assert not is_alive(pids["router"])


def test_the_fixture_fails_when_an_undisturbed_group_does_not_stop_cleanly():
    with pytest.raises(GroupError, match="exit code 70 after SIGTERM"), open_groups() as groups:
        groups.start(conf=CONF, env={"STAND_IN": "halt"})


def test_a_stopped_member_does_not_hang_the_fixture():
    with open_groups() as groups:
        group = groups.start(conf=CONF)
        group.signal("arbiter", signal.SIGSTOP)
    assert not is_alive(group.pids["arbiter"])


def test_a_ready_file_of_an_earlier_group_is_not_believed():
    with open_groups() as groups:
        first = groups.start(conf=CONF)
        ready = (first.runtime_dir / "ready.json").read_text()
        folder = groups.new_runtime_dir()
        second = groups.start(
            conf=CONF, env={"STAND_IN": "never-ready"}, runtime_dir=folder, wait_ready=False
        )
        second.wait_listening()
        (folder / "ready.json").write_text(ready)
        with pytest.raises(GroupError, match="was not ready"):
            second.wait_ready(0.05)


def test_the_descriptor_limit_reaches_the_arbiter():
    with open_groups() as groups:
        group = groups.start(conf=CONF, descriptor_limit=64)
        limits = Path(f"/proc/{group.pids['arbiter']}/limits").read_text()
        assert [line.split()[3:5] for line in limits.splitlines() if "open files" in line] == [
            ["64", "64"]
        ]


def test_our_variables_of_the_test_run_do_not_leak_into_a_group(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("SESSIONS_SHARDS", "7")
    monkeypatch.setenv("WEB_CONCURRENCY", "9")
    monkeypatch.setenv("HTTP_PROXY", "http://127.0.0.1:1")
    with open_groups() as groups:
        group = groups.start(conf=CONF, shards=3, app="some:app")
        log = group.log()
    assert "'SESSIONS_SHARDS': '3'" in log
    assert "'SESSIONS_APP': 'some:app'" in log
    assert "WEB_CONCURRENCY" not in log
    assert "HTTP_PROXY" not in log


def test_signals_to_a_member_that_ended_are_refused_and_never_reach_a_stranger():
    with open_groups() as groups:
        group = groups.start(conf=CONF)
        group.terminate()
        with pytest.raises(ProcessLookupError):
            group.signal("shard 0", signal.SIGTERM)


def test_groups_of_one_test_have_folders_of_their_own():
    with open_groups() as groups:
        assert isinstance(groups, Groups)
        first, second = groups.start(conf=CONF), groups.start(conf=CONF)
        assert first.runtime_dir != second.runtime_dir
        assert first.address != second.address
        assert len(os.fsencode(first.runtime_dir / "router.channel")) < 60


def test_importing_the_harness_starts_nothing():
    code = "import tests.support.group, threading; print(threading.active_count())"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, check=True)
    assert done.stdout == b"1\n"
