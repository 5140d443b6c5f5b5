"""The command line as a whole: exit codes, one line per fault, light imports."""

from __future__ import annotations

import subprocess
import sys
from importlib.metadata import version

import pytest

from sessions.cli import check
from sessions.cli.main import main
from tests.support.command_line import run_command


def test_the_module_runs_and_tells_its_version():
    done = run_command("--version")
    assert (done.returncode, done.stdout) == (0, f"sessile {version('sessile')}\n")


@pytest.mark.parametrize("words", [[], ["nope"], ["check"], ["sim"], ["check", "a", "b"]])
def test_a_wrong_call_exits_2(words: list[str], capsys: pytest.CaptureFixture[str]):
    with pytest.raises(SystemExit) as caught:
        main(words)
    assert caught.value.code == 2
    assert "usage:" in capsys.readouterr().err


@pytest.mark.parametrize("command", [[], ["check"], ["sim"], ["settings"]])
def test_every_command_has_help(command: list[str], capsys: pytest.CaptureFixture[str]):
    with pytest.raises(SystemExit) as caught:
        main([*command, "--help"])
    assert caught.value.code == 0
    assert "python -m sessions" in capsys.readouterr().out


def test_an_interrupt_exits_130_without_a_traceback(monkeypatch: pytest.MonkeyPatch):
    def interrupt(_args: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(check, "run_command", interrupt)
    assert main(["check", "http://127.0.0.1:1"]) == 130


def test_the_check_loads_no_server_engine_or_tokenizer():
    code = (
        "import sys; from sessions.cli.main import main; main(['check', 'http://127.0.0.1:1']);"
        "print([name for name in ('uvicorn', 'starlette', 'tokenizers', 'tiktoken', 'numpy')"
        " if name in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n"
