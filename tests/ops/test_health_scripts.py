"""The probe scripts, with curl and with nothing but python3."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.support.group import ROOT
from tests.support.health_server import HealthServer, running_health_server

SCRIPTS = ("live.sh", "ready.sh", "check.sh")
Run = Callable[..., subprocess.CompletedProcess[str]]


@pytest.fixture
def server() -> Iterator[HealthServer]:
    with running_health_server() as made:
        yield made


def runner(folder: Path, tools: dict[str, str]) -> Run:
    """Runs a script with only these tools on the path, and a proxy that must not be used."""
    folder.mkdir()
    for name, target in tools.items():
        (folder / name).symlink_to(target)

    def run(script: str, *words: str, **environ: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [str(ROOT / "ops/health" / script), *words],
            env={"PATH": str(folder), "http_proxy": "http://127.0.0.1:1"} | environ,
            capture_output=True,
            text=True,
            check=False,
            timeout=30,
        )

    return run


@pytest.fixture(params=["curl", "python3"])
def run(request: pytest.FixtureRequest, tmp_path: Path) -> Run:
    tool = request.param
    found = shutil.which("curl") if tool == "curl" else os.path.realpath(sys.executable)
    assert found, "curl is needed for this test: install it"
    return runner(tmp_path / "bin", {tool: found})


@pytest.mark.parametrize("script", SCRIPTS)
def test_a_healthy_server_exits_0_with_its_answer(run: Run, server: HealthServer, script: str):
    done = run(script, server.url + "/")
    assert (done.returncode, done.stderr) == (0, "")
    assert json.loads(done.stdout)["status"] == "ok"
    assert done.stdout.count("\n") == 1


def test_a_draining_server_is_alive_and_not_ready(run: Run, server: HealthServer):
    server.health["status"] = "draining"
    assert run("live.sh", server.url).returncode == 0
    done = run("ready.sh", server.url)
    told = f'{server.url}/readyz says 503: {{"status":"draining"}}\n'
    assert (done.returncode, done.stdout, done.stderr) == (1, "", told)


def test_the_check_names_what_died(run: Run, server: HealthServer):
    server.health.update(status="dying", cause="shard 3 was killed by signal 9")
    done = run("check.sh", server.url)
    assert done.returncode == 1
    assert "shard 3 was killed by signal 9" in done.stderr


@pytest.mark.parametrize("script", SCRIPTS)
def test_nobody_there_exits_1(run: Run, script: str):
    done = run(script, "http://127.0.0.1:1/")
    assert (done.returncode, done.stdout) == (1, "")
    assert re.fullmatch(r"http://127\.0\.0\.1:1/[a-z]+ does not answer: .+\n", done.stderr)


def test_silence_ends_at_the_time_out(run: Run, server: HealthServer):
    server.silent.set()
    done = run("live.sh", server.url, "0.2")
    assert done.returncode == 1
    assert "does not answer: " in done.stderr


def test_the_address_of_the_settings_is_the_default(run: Run, server: HealthServer):
    address = server.url.removeprefix("http://")
    assert run("ready.sh", SESSIONS_BIND=address).returncode == 0
    assert "http://127.0.0.1:1/readyz" in run("ready.sh", SESSIONS_BIND="127.0.0.1:1").stderr


@pytest.mark.parametrize(
    "words", [["http://127.0.0.1:1", "5", "more"], ["http://127.0.0.1:1", "soon"]]
)
def test_a_wrong_call_exits_2(run: Run, words: list[str]):
    assert run("live.sh", *words).returncode == 2


def test_no_tool_exits_2_and_says_so(tmp_path: Path):
    done = runner(tmp_path / "bin", {})("live.sh", "http://127.0.0.1:1")
    assert (done.returncode, done.stderr) == (2, "neither curl nor python3 is here\n")


@pytest.mark.parametrize("script", [*SCRIPTS, "probe.sh"])
def test_the_scripts_are_plain_sh(script: str):
    path = ROOT / "ops/health" / script
    assert path.read_text().startswith("#!/bin/sh\n")
    assert os.access(path, os.X_OK)
    assert subprocess.run(["/bin/sh", "-n", str(path)], check=False).returncode == 0
