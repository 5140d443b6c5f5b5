"""From a command line to a kept group, or to one line that says why not; with real gunicorn."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

import pytest
from gunicorn.app.base import BaseApplication
from gunicorn.arbiter import Arbiter

from sessions.chassis.hooks import load_settings, make_group, no_wsgi_app, start_group
from sessions.chassis.refusals import stop_limit_s
from sessions.chassis.roles import Roles
from sessions.chassis.worker import GroupWorker
from sessions.settings import Settings
from tests.support.group import CONF, ROOT, Groups
from tests.support.processes import descriptor_count, is_alive
from tests.support.stand_ins import CONF as STAND_INS
from tests.support.stand_ins import lines, start, status_of, wait_line


def _run(
    folder: Path, *args: str, conf: Path = CONF, env: Mapping[str, str] | None = None
) -> subprocess.CompletedProcess[str]:
    """Run gunicorn to its end, which must come by itself."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith("SESSIONS_")}
    ours = {
        "SESSIONS_SHARDS": "2",
        "SESSIONS_ENGINE_URL": "sim:",
        "SESSIONS_BIND": "127.0.0.1:0",
        "SESSIONS_RUNTIME_DIR": str(folder / "r"),
    }
    return subprocess.run(
        [sys.executable, "-m", "gunicorn", "-c", str(conf), *args],
        cwd=ROOT,
        env=kept | ours | dict(env or {}),
        capture_output=True,
        text=True,
        timeout=30,
        check=False,
    )


@pytest.mark.parametrize(
    ("args", "env", "found"),
    [
        (["-w", "5"], {}, "--workers 5"),
        (["--preload"], {}, "--preload"),
        (["--max-requests", "9"], {}, "--max-requests"),
        (["--reload"], {}, "--reload"),
        (["--reuse-port"], {}, "--reuse-port"),
        (["-k", "sync"], {}, "--worker-class SyncWorker"),
        (["--daemon"], {}, "--daemon"),
        (["--dirty-app", "a:B", "--dirty-workers", "1"], {}, "--dirty-workers"),
        (["--certfile", "c.pem", "--keyfile", "k.pem"], {}, "--certfile"),
        (["--timeout", "0"], {}, "--timeout 0"),
        (["--graceful-timeout", "1"], {}, "--graceful-timeout 1"),
        (["--env", "SESSIONS_SHARDS=3"], {}, "--env SESSIONS_SHARDS"),
        (["my:app"], {}, "application my:app"),
        ([], {"WEB_CONCURRENCY": "2"}, "WEB_CONCURRENCY=2"),
        ([], {"GUNICORN_CMD_ARGS": "--workers=9"}, "--workers 9"),
        ([], {"GUNICORN_CMD_ARGS": "--daemon"}, "--daemon"),
        ([], {"SESSIONS_SHARDS": "0"}, "SESSIONS_SHARDS='0'"),
        ([], {"SESSIONS_SHRADS": "2"}, "unknown setting SESSIONS_SHRADS"),
        ([], {"SESSIONS_ENGINE_URL": ""}, "SESSIONS_ENGINE_URL is not set"),
        ([], {"SESSIONS_ENGINE_URL": "sim:?layer=1"}, "SESSIONS_ENGINE_URL='sim:?layer=1'"),
        ([], {"SESSIONS_TITO_FAMILY": "qwen"}, "SESSIONS_TITO_FAMILY='qwen'"),
        ([], {"SESSIONS_APP": "nowhere"}, "SESSIONS_APP='nowhere'"),
        ([], {"SESSIONS_APP": "nowhere:app"}, "there is no module 'nowhere'"),
        ([], {"SESSIONS_MAX_CONNECTIONS": "1000000"}, "SESSIONS_MAX_CONNECTIONS=1000000"),
        ([], {"SESSIONS_SPOOL_DIR": "/dev/null"}, "SESSIONS_SPOOL_DIR=/dev/null is no folder"),
        (["--log-level", "loud"], {}, "--log-level loud"),
    ],
)
def test_a_refused_start_exits_1_with_one_line_that_says_why(
    tmp_path: Path, args: list[str], env: dict[str, str], found: str
):
    ended = _run(tmp_path, *args, env=env)
    assert ended.returncode == 1, ended.stderr
    errors = [line for line in ended.stderr.splitlines() if "Error: " in line]
    assert len(errors) == 1
    assert found in errors[0]
    assert "Traceback" not in ended.stderr
    assert "Listening at" not in ended.stderr
    assert ended.stdout == ""


def test_a_control_socket_is_refused(tmp_path: Path):
    conf = tmp_path / "conf.py"
    conf.write_text("from gunicorn_conf import *\ncontrol_socket_disable = False\n")
    ended = _run(tmp_path, conf=conf)
    assert ended.returncode == 1
    assert "control_socket_disable=False" in ended.stderr


def test_a_folder_with_a_long_path_is_refused(tmp_path: Path):
    folder = tmp_path / ("x" * 100)
    ended = _run(tmp_path, env={"SESSIONS_RUNTIME_DIR": str(folder)})
    assert ended.returncode == 1
    assert not folder.exists()
    assert "the limit is 103: set SESSIONS_RUNTIME_DIR to a shorter folder" in ended.stderr


def test_all_reasons_stand_in_one_line(tmp_path: Path):
    ended = _run(tmp_path, "-w", "5", "--reload")
    (line,) = [line for line in ended.stderr.splitlines() if "Error: " in line]
    assert "--workers 5" in line
    assert "--reload" in line


def test_a_second_group_in_the_same_folder_is_refused_and_the_first_goes_on(groups: Groups):
    first = start(groups, shards=1)
    ended = _run(
        first.runtime_dir.parent,
        conf=STAND_INS,
        env={"SESSIONS_RUNTIME_DIR": str(first.runtime_dir)},
    )
    assert ended.returncode == 1
    assert "another group is running in" in ended.stderr
    assert all(is_alive(pid) for pid in first.pids.values())
    assert (first.runtime_dir / "ready.json").exists()
    assert first.terminate() == 0


def test_a_start_that_fails_at_its_address_leaves_no_folder(tmp_path: Path):
    (tmp_path / "file").touch()
    (tmp_path / "folders").mkdir()
    env = {"SESSIONS_RUNTIME_DIR": "", "TMPDIR": str(tmp_path / "folders")}
    ended = _run(tmp_path, "--bind", f"unix:{tmp_path / 'file'}", conf=STAND_INS, env=env)
    assert ended.returncode == 1
    assert "is not a socket" in ended.stderr
    assert list((tmp_path / "folders").iterdir()) == []


def test_the_address_of_gunicorn_wins_over_the_setting(groups: Groups):
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    group = start(groups, "--bind", f"127.0.0.1:{port}", shards=1)
    assert group.address == ("127.0.0.1", port)


def test_the_folder_is_private_and_empty_but_for_its_lock_after_a_stop(groups: Groups):
    group = start(groups)
    assert group.runtime_dir.stat().st_mode & 0o777 == 0o700
    assert group.terminate() == 0
    assert [path.name for path in group.runtime_dir.iterdir()] == ["lock"]


def test_a_temporary_folder_is_gone_after_a_stop_and_after_a_death(groups: Groups, tmp_path: Path):
    for plan, code in (("", 0), ("shard 0=raise", 71)):
        group = start(
            groups,
            shards=1,
            plan=plan,
            env={"SESSIONS_RUNTIME_DIR": "", "TMPDIR": str(tmp_path)},
            wait_ready=False,
        )
        if not plan:
            wait_line(group, "shard 0 ready")
            assert len(list(tmp_path.iterdir())) == 1
            assert group.terminate() == code
        assert group.wait_exit() == code
        assert list(tmp_path.iterdir()) == []


def test_the_limit_of_open_files_is_raised_for_all_members(groups: Groups):
    group = start(groups, shards=1)
    for pid in group.pids.values():
        (limit,) = [
            line.split()
            for line in Path(f"/proc/{pid}/limits").read_text().splitlines()
            if line.startswith("Max open files")
        ]
        assert limit[3] == limit[4]
        assert descriptor_count(pid) < 32  # what the reserve is for


def test_lines_are_json_when_asked_for(groups: Groups):
    group = start(groups, shards=1, env={"SESSIONS_LOG_FORMAT": "json"})
    assert group.terminate() == 0
    assert group.log().splitlines()
    for line in group.log().splitlines():
        assert line.startswith('{"time": "')
    assert lines(group, '"role": "shard 0"', '"message": "shard 0 ready pid=')


def test_a_level_of_gunicorn_holds_for_our_lines(groups: Groups):
    group = start(groups, "--log-level", "warning", shards=1)
    assert group.terminate() == 0
    assert lines(group, "shard 0 ready") == []


class _App(BaseApplication):
    def load_config(self) -> None:
        """Gunicorn's defaults and what our configuration file adds."""
        ours = {
            "worker_class": GroupWorker,
            "control_socket_disable": True,
            "timeout": 60,
            "graceful_timeout": stop_limit_s(Settings()),
        }
        for name, value in ours.items():
            self.cfg.set(name, value)


def test_a_stop_that_comes_while_a_group_is_prepared_waits_in_the_queue(tmp_path: Path):
    settings = Settings(engine_url="sim:", runtime_dir=str(tmp_path / "r"))

    def act() -> None:
        server = Arbiter(_App())
        server.pid = os.getpid()
        start_group(server, settings, Roles())
        os.kill(os.getpid(), signal.SIGTERM)
        assert server.SIG_QUEUE.get(timeout=5) == signal.SIGTERM

    assert status_of(act) == 99


def test_settings_are_read_from_the_given_environment():
    settings = load_settings(["gunicorn"], {"SESSIONS_SHARDS": "7"})
    assert settings == Settings(shards=7)


def test_every_run_has_a_name_and_a_secret_of_its_own(tmp_path: Path):
    first, second = (make_group(Settings(), tmp_path) for _ in range(2))
    assert first.instance_id != second.instance_id
    assert len(bytes.fromhex(first.instance_id)) == 16
    assert first.run_secret != second.run_secret
    assert len(first.run_secret) == 32
    assert repr(first.run_secret) not in repr(first)


def test_the_application_that_gunicorn_insists_on_serves_nothing():
    with pytest.raises(NotImplementedError, match="SESSIONS_APP"):
        no_wsgi_app({}, None)
