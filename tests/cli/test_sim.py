"""`sim`: the simulated engine as a process of its own."""

from __future__ import annotations

import signal
import subprocess
import sys
from dataclasses import fields

import httpx
import pytest

from sessions.cli.main import main
from sessions.sim import server
from sessions.sim.options import SimOptions


def test_the_engine_serves_until_sigterm_and_prints_its_address():
    command = [sys.executable, "-m", "sessions", "sim", "--port", "0", "--model", "tiny"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        try:
            url = process.stdout.readline().strip()
            with httpx.Client(trust_env=False) as client:
                models = client.get(f"{url}/v1/models").json()
            process.send_signal(signal.SIGTERM)
            assert process.wait(20) == 0
        finally:
            process.kill()
    assert [model["id"] for model in models["data"]] == ["tiny"]


def test_every_option_is_a_flag_and_only_given_ones_are_passed(monkeypatch: pytest.MonkeyPatch):
    seen: list[object] = []
    monkeypatch.setattr(server, "run_sim", lambda *args, **_kwargs: seen.append(args))
    assert main(["sim", "--port", "7"]) == 0
    words = ["--layers", "48", "--topk", "8", "--latency-s", "0.5", "--weight-version", "a b&c=d"]
    assert main(["sim", "--port", "8", "--host", "::1", *words]) == 0
    changed = SimOptions(layers=48, topk=8, latency_s=0.5, weight_version="a b&c=d")
    assert seen == [("127.0.0.1", 7, SimOptions()), ("::1", 8, changed)]


@pytest.mark.parametrize("field", [field.name for field in fields(SimOptions)])
def test_a_refused_option_exits_1_with_one_line(field: str, capsys: pytest.CaptureFixture[str]):
    flag = f"--{field.replace('_', '-')}"
    assert main(["sim", "--port", "0", f"{flag}="]) == 1
    out, err = capsys.readouterr()
    assert (out, err.count("\n")) == ("", 1)
    assert field in err


def test_a_tokenizer_that_is_not_there_exits_1_with_one_line(capsys: pytest.CaptureFixture[str]):
    assert main(["sim", "--port", "0", "--tokenizer", "nowhere.json"]) == 1
    assert "nowhere.json" in capsys.readouterr().err
