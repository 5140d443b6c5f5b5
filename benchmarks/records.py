"""What reading records costs: CPU, speed and memory of a long read, and chats beside eight of them.

`python -m benchmarks.records` fills a session of a lone shard with large replies of the simulated
engine, reads it in rounds beside a plain uvicorn that streams as many bytes from memory, and times
chats on the idle shard and beside downloads. It prints figures, ratios within a round, and whether
the goals are met. Small by default; the documented figures are those of `--mib 1024 --rounds 5`.

Spec: docs/benchmark.md#records
"""

from __future__ import annotations

import argparse
import asyncio
import json
import shutil
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Final

from benchmarks.downloads import downloading, time_download
from benchmarks.figures import Spread, Verdict, spread_of
from benchmarks.load import LoadError
from benchmarks.processes import free_port, run_process, wait_answer
from benchmarks.stand import open_engines, open_replay_group
from benchmarks.usage import read_cpu_s, read_memory
from tests.support.group import RunningGroup
from tests.support.raw import RawConnection, open_raw, request_bytes

_MIB: Final = 1 << 20
OURS: Final = "records"
RAW: Final = "plain uvicorn, bare loop"
USUAL: Final = "plain uvicorn, Starlette"
DOWNLOADS: Final = 8
_REPLY_MIB: Final = 134  # of one turn in production
_ROW_CHARS: Final = 4000 / 3  # 25 layers, 10 experts each, as int32 and base64
_ENGINE: Final = {"layers": "25", "topk": "10", "context": "262144"}
_CLIENTS: Final = 4
_CHATS: Final = 60  # of each client
_THINK_S: Final = 0.002
_TIMEOUT_S: Final = 300.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Reading:
    """One read.

    Attributes:
        mib_per_s: Its speed.
        cpu_ms_per_mib: Of the server.
    """

    mib_per_s: float
    cpu_ms_per_mib: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """All that was measured.

    Attributes:
        size_bytes: Of the reply.
        readings: By server, one per round.
        extra_bytes: Highest resident memory during a read over that before it.
        idle_p99_ms: Of chats on the idle shard, one per round.
        busy_p99_ms: Beside downloads.
    """

    size_bytes: int
    readings: dict[str, list[Reading]]
    extra_bytes: int
    idle_p99_ms: list[float]
    busy_p99_ms: list[float]


def verdicts_of(outcome: Outcome) -> list[Verdict]:
    """The goals and what was measured."""

    def ratio(beside: str, figure: Callable[[Reading], float]) -> Spread:
        pairs = zip(outcome.readings[OURS], outcome.readings[beside], strict=True)
        return spread_of([figure(ours) / figure(other) for ours, other in pairs])

    def speed(reading: Reading) -> float:
        return reading.mib_per_s

    cpu = spread_of([reading.cpu_ms_per_mib for reading in outcome.readings[OURS]])
    p99 = zip(outcome.busy_p99_ms, outcome.idle_p99_ms, strict=True)
    found = (
        ("CPU ms per MiB of the shard", 0.5, False, cpu),
        (f"speed, x {RAW}", 0.8, True, ratio(RAW, speed)),
        (f"speed, x {USUAL}", 0.8, True, ratio(USUAL, speed)),
        ("extra memory of a read, MiB", 16.0, False, spread_of([outcome.extra_bytes / _MIB])),
        (
            f"p99 of chats beside {DOWNLOADS} downloads, x idle",
            2.0,
            False,
            spread_of([busy / idle for busy, idle in p99]),
        ),
    )
    return [
        Verdict(what=what, limit=limit, at_least=at_least, got=got)
        for what, limit, at_least, got in found
    ]


def render(outcome: Outcome) -> str:
    """The figures as text."""
    lines = [f"a reply of {outcome.size_bytes / _MIB:.0f} MiB, {len(outcome.idle_p99_ms)} rounds"]
    for server, readings in outcome.readings.items():
        speed = statistics.median(reading.mib_per_s for reading in readings)
        cpu = statistics.median(reading.cpu_ms_per_mib for reading in readings)
        lines.append(f"{server:26} {speed:7.0f} MiB/s  {cpu:.3f} CPU ms/MiB")
    idle, busy = (statistics.median(v) for v in (outcome.idle_p99_ms, outcome.busy_p99_ms))
    lines.append(f"chats: p99 {idle:.1f} ms idle, {busy:.1f} ms beside {DOWNLOADS} downloads")
    lines += [verdict.line() for verdict in verdicts_of(outcome)]
    return "\n".join(lines)


def measure(folder: Path, mib: int, rounds: int) -> Outcome:
    """Start the servers, fill a session, run all rounds.

    Raises:
        LoadError: A server answered with an error or did not start.
        GroupError: The group did not start.
    """
    plain = ("127.0.0.1", free_port())
    command = [sys.executable, "-m", "uvicorn", "benchmarks.plain:app", "--factory"]
    command += ["--loop", "uvloop", "--http", "httptools", "--no-access-log", "--lifespan", "off"]
    log = folder / "plain.log"
    with (
        open_engines(folder, 1, _ENGINE) as engines,
        open_replay_group(folder, 1, engines.urls, {}) as group,
        run_process([*command, "--port", str(plain[1])], log) as process,
    ):
        wait_answer(process, plain, log)
        target, size_bytes = _fill(group.address, mib * _MIB)
        servers = {
            OURS: (group.address, group.pids["shard 0"], target),
            RAW: (plain, process.pid, f"/raw?bytes={size_bytes}"),
            USUAL: (plain, process.pid, f"/usual?bytes={size_bytes}"),
        }
        readings: dict[str, list[Reading]] = {server: [] for server in servers}
        idle: list[float] = []
        busy: list[float] = []
        for number in range(rounds + 1):  # the first one warms up
            print(f"round {number} of {rounds}", file=sys.stderr, flush=True)
            for server, (address, pid, asked) in servers.items():
                readings[server].append(_read(address, pid, asked))
            idle.append(asyncio.run(_time_chats(group)))
            with downloading(group.address, DOWNLOADS, target):
                busy.append(asyncio.run(_time_chats(group)))
        return Outcome(
            size_bytes=size_bytes,
            readings={server: found[1:] for server, found in readings.items()},
            extra_bytes=_extra_memory(group.address, group.pids["shard 0"], target),
            idle_p99_ms=idle[1:],
            busy_p99_ms=busy[1:],
        )


def _read(address: tuple[str, int], pid: int, target: str) -> Reading:
    before_s = read_cpu_s(pid)
    run = time_download(address, target)
    mib = run.count * 1024
    spent_ms = (read_cpu_s(pid) - before_s) * 1e3
    return Reading(mib_per_s=mib / run.duration_s, cpu_ms_per_mib=spent_ms / mib)


def _extra_memory(address: tuple[str, int], pid: int, target: str) -> int:
    Path(f"/proc/{pid}/clear_refs").write_text("5")  # the highest mark starts anew
    before = read_memory(pid).now_bytes
    time_download(address, target)
    return read_memory(pid).peak_bytes - before


def _fill(address: tuple[str, int], size_bytes: int) -> tuple[str, int]:
    """Chat in a new session until its records are that large; its path and their size."""
    reply_bytes = min(_REPLY_MIB * _MIB, size_bytes)
    words = "time " * int(reply_bytes / _ROW_CHARS)
    messages: list[dict[str, Any]] = [{"role": "user", "content": words}]
    with RawConnection(address, timeout_s=_TIMEOUT_S) as connection:
        created = json.loads(connection.ask(request_bytes("POST", "/sessions")).body)
        path = f"/sessions/{created['session_id']}"
        size = 0
        while size < size_bytes:
            request = request_bytes("POST", f"{path}/v1/chat/completions", body=_chat(messages))
            reply = connection.ask(request)
            if reply.status != 200:
                raise LoadError(f"a chat got {reply.status}: {reply.body[:200]!r}")
            messages.append(json.loads(reply.body)["choices"][0]["message"])
            messages.append({"role": "user", "content": "more"})
            head = connection.ask(request_bytes("HEAD", path), head_only=True)
            size = int(head.header("content-length") or "0")
    return path, size


def _chat(messages: list[dict[str, Any]]) -> bytes:
    return json.dumps({"model": "sim", "messages": messages, "sim": {"content": "so"}}).encode()


async def _time_chats(group: RunningGroup) -> float:
    """The 99th percentile of short chats, in ms; each is the first turn of its session anew."""
    taken_ms: list[float] = []

    async def ask() -> None:
        async with open_raw(group.address, timeout_s=_TIMEOUT_S) as connection:
            created = json.loads((await connection.ask(request_bytes("POST", "/sessions"))).body)
            path = f"/sessions/{created['session_id']}"
            body = _chat([{"role": "user", "content": "hi"}])
            request = request_bytes("POST", f"{path}/v1/chat/completions", body=body)
            for _ in range(_CHATS):
                begin = time.perf_counter()
                reply = await connection.ask(request)
                taken_ms.append((time.perf_counter() - begin) * 1e3)
                if reply.status != 200:
                    raise LoadError(f"a chat got {reply.status}")
                await asyncio.sleep(_THINK_S)
            await connection.ask(request_bytes("DELETE", path))

    await asyncio.gather(*(ask() for _ in range(_CLIENTS)))
    taken_ms.sort()
    return taken_ms[int(len(taken_ms) * 0.99)]


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the benchmark; returns the exit code."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.records")
    parser.add_argument("--mib", type=int, default=256, help="size of the records that are read")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--json", type=Path, metavar="FILE", help="write every sample there")
    options = parser.parse_args(arguments)
    folder = Path(tempfile.mkdtemp(prefix="sesr", dir="/tmp"))  # short: sockets have 107 bytes
    try:
        outcome = measure(folder, options.mib, options.rounds)
    finally:
        shutil.rmtree(folder)
    print(render(outcome))
    if options.json is not None:
        options.json.write_text(json.dumps(asdict(outcome), indent=1))
    return 0


if __name__ == "__main__":
    sys.exit(main())
