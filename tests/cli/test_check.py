"""`check` from outside: exit codes and the one line."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from sessions.cli.main import main
from tests.support.command_line import run_command
from tests.support.fake_server import shard
from tests.support.health_server import HealthServer, running_health_server


@pytest.fixture
def server() -> Iterator[HealthServer]:
    with running_health_server() as made:
        yield made


def test_a_healthy_server_exits_0_and_tells_what_runs(server: HealthServer):
    done = run_command("check", server.url)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout == (
        f"{server.url} is healthy: shards=2 instance={'f' * 32} version=0 uptime_s=1.5\n"
    )


def test_nobody_there_exits_1_with_one_line():
    done = run_command("check", "http://127.0.0.1:1")
    told = "http://127.0.0.1:1 does not answer: connection refused\n"
    assert (done.returncode, done.stdout, done.stderr) == (1, "", told)


@pytest.mark.parametrize(
    ("changes", "told"),
    [
        ({"status": "draining"}, "is draining and takes no new work"),
        ({"status": "starting", "shards": [shard(0, "booting")]}, "shard 0 (pid 100) is booting"),
        ({"status": "dying", "cause": "shard 3 was killed by signal 9"}, "shard 3 was killed"),
        ({"shards": [shard(0), shard(1, "dead")]}, "shard 1 (pid 101) is dead"),
    ],
)
def test_an_unhealthy_server_exits_1_with_one_line_that_names_it(
    server: HealthServer,
    changes: dict[str, object],
    told: str,
    capsys: pytest.CaptureFixture[str],
):
    server.health.update(changes)
    assert main(["check", server.url]) == 1
    out, err = capsys.readouterr()
    assert (out, err.count("\n")) == ("", 1)
    assert err.startswith(server.url)
    assert told in err


def test_a_silent_server_exits_1_at_the_time_out(
    server: HealthServer, capsys: pytest.CaptureFixture[str]
):
    server.silent.set()
    assert main(["check", server.url, "--timeout-s", "0.05"]) == 1
    assert "does not answer: timed out" in capsys.readouterr().err


ADDRESSES = ["127.0.0.1:8000", "ftp://a", "http://", "http://a:b", "http://a:0", "http://[a", ""]


@pytest.mark.parametrize("url", ADDRESSES)
def test_what_is_no_address_exits_2(url: str, capsys: pytest.CaptureFixture[str]):
    with pytest.raises(SystemExit) as caught:
        main(["check", url])
    assert caught.value.code == 2
    assert "is not an address like" in capsys.readouterr().err


@pytest.mark.parametrize("seconds", ["0", "-1", "inf", "nan", "soon"])
def test_what_is_no_time_out_exits_2(seconds: str, capsys: pytest.CaptureFixture[str]):
    with pytest.raises(SystemExit) as caught:
        main(["check", "http://127.0.0.1:1", f"--timeout-s={seconds}"])
    assert caught.value.code == 2
    assert "--timeout-s" in capsys.readouterr().err
