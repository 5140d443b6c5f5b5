"""Small requests beside large replies: what four replies of 1 GiB do to the 99th percentile.

Every round takes the time of small requests on an idle group, beside fast readers and beside slow
ones, in turn. A ratio compares within one round; what is printed is the median over the rounds.

Spec: docs/benchmark.md#endurance
"""

from __future__ import annotations

import asyncio
import statistics
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Final

from tests.support.group import ROOT, RunningGroup
from tests.support.ids import ids_of_shard
from tests.support.raw import open_raw, request_bytes

READERS: Final = 4
ROUNDS: Final = 3
_PAUSES_S: Final[Mapping[str, float]] = {"fast readers": 0.0, "slow readers": 0.1}
_CLIENTS: Final = 4
_SAMPLES: Final = 400  # of each client
_THINK_S: Final = 0.002


@dataclass(frozen=True, slots=True, kw_only=True)
class Times:
    """Times of many small requests, in ms."""

    p50_ms: float
    p99_ms: float


def measure(group: RunningGroup, shards: int, size_bytes: int) -> list[dict[str, Times]]:
    """All rounds: the times of small requests by what went on beside them.

    Args:
        group: With the `cases` application.
        shards: How many it has.
        size_bytes: Of each large reply.
    """
    rounds = []
    for _ in range(ROUNDS):
        found = {"idle": asyncio.run(_time_small(group, shards))}
        for name, pause_s in _PAUSES_S.items():
            with _reading(group, shards, size_bytes, pause_s):
                found[name] = asyncio.run(_time_small(group, shards))
        rounds.append(found)
    return rounds


def lines_of(rounds: list[dict[str, Times]]) -> Iterator[str]:
    """The medians in words."""
    for name in rounds[0]:
        p50_ms = statistics.median(found[name].p50_ms for found in rounds)
        p99_ms = statistics.median(found[name].p99_ms for found in rounds)
        ratios = [found[name].p99_ms / found["idle"].p99_ms for found in rounds]
        each = " ".join(f"{ratio:.2f}" for ratio in ratios)
        yield (
            f"{name:13} p50 {p50_ms:7.2f} ms  p99 {p99_ms:7.2f} ms  "
            f"p99 to idle {statistics.median(ratios):.2f} ({each})"
        )


@contextmanager
def _reading(
    group: RunningGroup, shards: int, size_bytes: int, pause_s: float
) -> Iterator[list[subprocess.Popen[str]]]:
    """Readers that read while the block runs; a fast one asks again when it is through."""
    host, port = group.address
    readers = []
    for number in range(READERS):
        session = ids_of_shard(number % shards, shards)[0]
        # Fast readers would be through before the samples are taken: they get more to read.
        total = size_bytes if pause_s else size_bytes * 64
        command = [sys.executable, "-m", "benchmarks.reader", host, str(port), session]
        command += [str(total), str(pause_s)]
        readers.append(subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True))
    try:
        for reader in readers:
            if reader.stdout is None or not reader.stdout.readline():
                raise RuntimeError("a reader did not begin")
        yield readers
        if any(reader.poll() is not None for reader in readers):
            raise RuntimeError("a reader ended while small requests were timed")
    finally:
        for reader in readers:
            reader.kill()
            reader.communicate()


async def _time_small(group: RunningGroup, shards: int) -> Times:
    sessions = [ids_of_shard(shard, shards)[0] for shard in range(shards)]
    taken_ms: list[float] = []

    async def ask(number: int) -> None:
        async with open_raw(group.address) as connection:
            for sample in range(_SAMPLES):
                session = sessions[(number + sample) % shards]
                request = request_bytes("POST", f"/sessions/{session}/trivial", body=b"x" * 1024)
                begin = time.perf_counter()
                reply = await connection.ask(request)
                taken_ms.append((time.perf_counter() - begin) * 1e3)
                if reply.status != 200:
                    raise RuntimeError(f"a small request got {reply.status}")
                await asyncio.sleep(_THINK_S)

    await asyncio.gather(*(ask(number) for number in range(_CLIENTS)))
    taken_ms.sort()
    return Times(p50_ms=statistics.median(taken_ms), p99_ms=taken_ms[len(taken_ms) * 99 // 100])
