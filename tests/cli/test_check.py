"""`check` from outside: exit codes and the one line."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest

from sessions.cli.main import main
from tests.support.command_line import run_command
from tests.support.fake_server import FakeServer, shard


class HealthServer(ThreadingHTTPServer):
    """Answers /healthz with a document that a test may change."""

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.health: dict[str, Any] = FakeServer().health
        self.silent = threading.Event()
        self.url = f"http://127.0.0.1:{self.server_port}"


class _Handler(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        server = self.server
        assert isinstance(server, HealthServer)
        if server.silent.is_set():
            self.rfile.read(1)  # until the client gives up
            return
        body = json.dumps(server.health).encode()
        self.send_response(200 if server.health["status"] == "ok" else 503)
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_args: object) -> None:
        pass


@pytest.fixture
def server() -> Iterator[HealthServer]:
    with HealthServer() as made:
        thread = threading.Thread(target=made.serve_forever, args=(0.01,))
        thread.start()
        yield made
        made.shutdown()
        thread.join()


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
