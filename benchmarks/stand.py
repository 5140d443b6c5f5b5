"""What stands during a production run: engines, the group, a baseline; each a real process.

Engines are simulated ones, each alone in a process, so that their cost is told apart. The group is
started as an operator starts it.

Spec: docs/benchmark.md#production-shape
"""

from __future__ import annotations

import contextlib
import json
import subprocess
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Final, Self

from benchmarks.baseline import ENGINE_VARIABLE
from benchmarks.load import LoadError
from benchmarks.processes import free_port, run_process, wait_answer
from tests.support.group import ROOT, RunningGroup, start_group
from tests.support.waiting import wait_until

_LISTENS_S: Final = 60.0
BASELINE: Final = "baseline"


@dataclass(frozen=True, slots=True, kw_only=True)
class Engines:
    """Simulated engines.

    Attributes:
        urls: Base URL of each.
        pids: By name.
    """

    urls: list[str]
    pids: Mapping[str, int]


@dataclass(frozen=True, slots=True, kw_only=True)
class Baseline:
    """The server to compare with."""

    address: tuple[str, int]
    pid: int


@contextlib.contextmanager
def open_engines(folder: Path, count: int, options: Mapping[str, str]) -> Iterator[Engines]:
    """Start engines; stop them at the end.

    Args:
        folder: For their logs.
        count: How many.
        options: Of each, as docs/sim.md lists them.

    Raises:
        DeadlineError: One does not listen.
        LoadError: One ended.
    """
    flags = [f"--{name.replace('_', '-')}={value}" for name, value in options.items()]
    command = [sys.executable, "-m", "sessions", "sim", "--port=0", *flags]
    with contextlib.ExitStack() as stack:
        logs = [folder / f"engine{number}.log" for number in range(count)]
        processes = [stack.enter_context(run_process(command, log)) for log in logs]
        urls = [_url_of(process, log) for process, log in zip(processes, logs, strict=True)]
        pids = {f"engine {number}": process.pid for number, process in enumerate(processes)}
        yield Engines(urls=urls, pids=pids)


def _url_of(process: subprocess.Popen[bytes], log: Path) -> str:
    def is_told() -> bool:
        if process.poll() is not None:
            raise LoadError(f"an engine ended:\n{log.read_text()}")
        return "\n" in log.read_text()

    wait_until(is_told, "an engine listens", _LISTENS_S)
    return log.read_text().splitlines()[0]


@contextlib.contextmanager
def open_replay_group(
    folder: Path, shards: int, engine_urls: list[str], env: Mapping[str, str]
) -> Iterator[RunningGroup]:
    """Start a group that asks the engines for routed experts; stop it at the end.

    Args:
        folder: With a short path, for its runtime folder and log.
        shards: How many.
        engine_urls: Of the engines.
        env: More variables.

    Raises:
        GroupError: It did not start.
    """
    settings = {
        "SESSIONS_ENGINE_URL": ",".join(engine_urls),
        "SESSIONS_TOKENIZER": "pkg:qwen3",
        "SESSIONS_ROUTING_REPLAY": "1",
    }
    group = start_group(runtime_dir=folder / "group", shards=shards, env=settings | dict(env))
    try:
        yield group
    finally:
        for wrong in group.close():
            print(f"the group: {wrong}\n{group.log()}", file=sys.stderr)


@contextlib.contextmanager
def open_baseline(folder: Path, engine_url: str) -> Iterator[Baseline]:
    """Start the baseline; stop it at the end.

    Raises:
        LoadError: It ended.
        DeadlineError: It does not listen.
    """
    address = ("127.0.0.1", free_port())
    command = [sys.executable, "-m", "uvicorn", "--factory", "benchmarks.baseline:app"]
    command += ["--loop", "uvloop", "--http", "httptools", "--no-access-log"]
    command += ["--log-level", "warning", "--port", str(address[1])]
    log = folder / "baseline.log"
    with run_process(command, log, {ENGINE_VARIABLE: engine_url}) as process:
        wait_answer(process, address, log)
        yield Baseline(address=address, pid=process.pid)


class Probing:
    """The prober while its block runs; see benchmarks/prober.py."""

    def __init__(self, address: tuple[str, int], sessions: list[str]) -> None:
        """Start it.

        Args:
            address: Of the server.
            sessions: Ids of empty sessions, one per shard.
        """
        command = [sys.executable, "-m", "benchmarks.prober", address[0], str(address[1])]
        self._process = subprocess.Popen(
            [*command, *sessions],
            cwd=ROOT,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        self.pid: Final = self._process.pid

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._process.poll() is None:
            self._process.kill()
        self._process.communicate()

    def stop(self) -> list[tuple[float, float]]:
        """End it.

        Returns:
            All its samples: monotonic seconds, milliseconds.

        Raises:
            LoadError: A probe failed.
        """
        told, _ = self._process.communicate("")
        if self._process.returncode != 0:
            raise LoadError("the prober failed")
        return [(at_s, ms) for at_s, ms in json.loads(told)]
