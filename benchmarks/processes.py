"""Servers that are no group: started, waited for, and stopped by pid.

Spec: docs/benchmark.md#servers
"""

from __future__ import annotations

import contextlib
import os
import socket
import subprocess
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Final

from benchmarks.load import LoadError
from tests.support.group import ROOT
from tests.support.waiting import wait_until

_STOP_S: Final = 10.0


@contextlib.contextmanager
def run_process(
    command: list[str], log: Path, env: Mapping[str, str] | None = None
) -> Iterator[subprocess.Popen[bytes]]:
    """Run a command in the project's folder while the block runs, then end it.

    Args:
        command: Program and arguments.
        log: Gets its stdout and stderr.
        env: Variables besides those of this process.
    """
    with log.open("wb") as out:
        process = subprocess.Popen(
            command,
            cwd=ROOT,
            env=os.environ | dict(env or {}),
            stdin=subprocess.DEVNULL,
            stdout=out,
            stderr=subprocess.STDOUT,
        )
    try:
        yield process
    finally:
        process.terminate()
        try:
            process.wait(_STOP_S)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def free_port() -> int:
    """A TCP port on loopback where nobody listens now."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


def wait_answer(process: subprocess.Popen[bytes], address: tuple[str, int], log: Path) -> None:
    """Wait until a process accepts connections.

    Raises:
        LoadError: It ended first; the message has its log.
        DeadlineError: It takes too long.
    """

    def answers() -> bool:
        if process.poll() is not None:
            raise LoadError(f"{process.args!r} ended before it answered:\n{log.read_text()}")
        with socket.socket() as probe:
            return probe.connect_ex(address) == 0

    wait_until(answers, f"{process.args!r} answers", deadline_s=30.0)
