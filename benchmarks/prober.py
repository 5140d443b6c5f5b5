"""Asks each shard for an empty session, fifty times a second: how long its loop lets others wait.

`python -m benchmarks.prober HOST PORT SESSION...` asks until its stdin ends, then prints samples as
JSON: [monotonic seconds, milliseconds]. One session per shard, one kept connection each. A reply
that took longer than the interval stands for the questions that could not be asked meanwhile, too.

A process of its own, so that the driver's loop is not part of what it measures. Waiting for a core
is: on a machine that is full, no figure here is the loop's alone.

Spec: docs/benchmark.md#production-shape
"""

from __future__ import annotations

import asyncio
import json
import math
import sys
import time
from collections.abc import Iterator
from typing import Final

from tests.support.raw import open_raw, request_bytes

INTERVAL_S: Final = 0.02
_TIMEOUT_S: Final = 120.0


def samples_of(begin_s: float, took_s: float) -> Iterator[tuple[float, float]]:
    """One reply as samples (seconds, milliseconds): its own, and those it stood in the way of."""
    yield begin_s, took_s * 1e3
    for number in range(1, math.ceil(took_s / INTERVAL_S)):
        missed_s = number * INTERVAL_S
        yield begin_s + missed_s, (took_s - missed_s) * 1e3


async def _ask(address: tuple[str, int], session: str, into: list[tuple[float, float]]) -> None:
    request = request_bytes("GET", f"/sessions/{session}")
    async with open_raw(address, timeout_s=_TIMEOUT_S) as connection:
        while True:
            begin_s = time.monotonic()
            reply = await connection.ask(request)
            took_s = time.monotonic() - begin_s
            if reply.status != 200:
                raise RuntimeError(f"a probe got {reply.status}")
            into += samples_of(begin_s, took_s)
            await asyncio.sleep(max(0.0, INTERVAL_S - took_s % INTERVAL_S))


async def _probe(address: tuple[str, int], sessions: list[str]) -> list[tuple[float, float]]:
    samples: list[tuple[float, float]] = []
    asking = [asyncio.create_task(_ask(address, session, samples)) for session in sessions]
    ended = asyncio.create_task(asyncio.to_thread(sys.stdin.read))
    done, _ = await asyncio.wait([*asking, ended], return_when=asyncio.FIRST_COMPLETED)
    for task in asking:
        task.cancel()
    for task in done - {ended}:
        task.result()  # a probe that failed
    return samples


def main() -> None:
    """Probe until stdin ends."""
    host, port, *sessions = sys.argv[1:]
    json.dump(asyncio.run(_probe((host, int(port)), sessions)), sys.stdout)


if __name__ == "__main__":
    main()
