"""Episode tools at full size: what a call costs, and what must hold for thousands of episodes.

`python -m benchmarks.tools <part>` runs one part, prints what clients saw, and ends with 1 if one
of them saw what none may see. The same things in small are tests (`tests/e2e`, `tests/benchmarks`).
No goal is a time; `calls` compares speeds of the same rounds.

Spec: docs/benchmark.md#tools
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import json
import os
import shutil
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

import httpx
import httpx2

from benchmarks.burners import open_burners
from benchmarks.docs import replace_figures
from benchmarks.load import LoadError
from benchmarks.report import table_text
from benchmarks.tool_calls import TOOL_APP, measure_calls
from benchmarks.tool_crowds import SESSION_APP, SESSION_ENV, open_episodes, open_sessions
from benchmarks.tool_growth import Crowd, Growth, grow
from benchmarks.tool_trials import FULL, SMALL, Seen, Size, try_tools
from tests.support.group import CONF, ROOT, GroupError, RunningGroup, start_group

_FAULT: Final = 1
_NOT_RUN: Final = 2
_MARKS: Final = "tool calls"
_SHARDS: Final = 4
_UNCLAIMED: Final = ROOT / "tests" / "support" / "unclaimed_conf.py"
_COUNTERS: Final = {
    "direct": "direct calls",
    "lists": "MCP lists of tools",
    "mcp": "MCP calls",
    "dead": "direct calls of a dead shard",
    "dead_mcp": "MCP calls of a dead shard",
    "left": "direct calls of the others",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Result:
    """What a part found.

    Attributes:
        text: For a terminal and for docs/benchmark.md.
        json: Every figure.
        faults: What no client may see, or a goal that was to be met and was not.
    """

    text: str
    json: object
    faults: Sequence[str] = field(default_factory=list)


def run_calls(options: argparse.Namespace, folder: Path) -> Result:
    """Calls a second behind a router and on one shard alone."""
    calls = measure_calls(folder, options.rounds, options.run_s)
    missed = [verdict.what for verdict in calls.verdicts() if not verdict.is_met]
    faults = [f"missed: {what}" for what in missed] if options.check else []
    return Result(text=calls.text(), json=calls.to_json(), faults=faults)


def run_episodes(options: argparse.Namespace, folder: Path) -> Result:
    """Thousands of episodes, and what is left of them."""
    return _grow(options, folder, TOOL_APP, {}, open_episodes)


def run_sessions(options: argparse.Namespace, folder: Path) -> Result:
    """The same with seeded sessions."""
    return _grow(options, folder, SESSION_APP, SESSION_ENV, open_sessions)


def _grow(
    options: argparse.Namespace,
    folder: Path,
    app: str,
    env: Mapping[str, str],
    opened: Callable[[RunningGroup], AbstractAsyncContextManager[Crowd]],
) -> Result:
    async def play(group: RunningGroup) -> Growth:
        async with opened(group) as crowd:
            return await grow(
                group,
                crowd,
                count=options.count,
                batch=options.batch,
                connections=options.connections,
            )

    with _open_group(folder / "g", app=app, env=env) as group:
        growth = asyncio.run(play(group))
    return Result(text=growth.text(), json=growth.to_json(), faults=growth.faults())


def run_unclaimed(options: argparse.Namespace, folder: Path) -> Result:
    """The trials with the look-up of claims switched off, and with it."""
    size = SMALL if options.small else FULL
    with _open_group(folder / "off", conf=_UNCLAIMED) as group:
        off = asyncio.run(try_tools(group, size))
    with _open_group(folder / "on") as group:
        on = asyncio.run(try_tools(group, size))
    faults = on.faults()
    told = {name: getattr(off, name) for name in _COUNTERS}
    faults += [
        f"{_COUNTERS[name]}: all right without claims, so the trial shows nothing"
        for name, counter in told.items()
        if counter == getattr(on, name)
    ]
    text = table_text(
        "what agents saw", [["", "came", "claims off", "claims on"], *_rows_of(off, on)]
    )
    return Result(text=text, json={"off": off.to_json(), "on": on.to_json()}, faults=faults)


def _rows_of(off: Seen, on: Seen) -> list[list[str]]:
    rows = []
    for name, meaning in _COUNTERS.items():
        without, having = getattr(off, name), getattr(on, name)
        rows += [
            [meaning, came, f"{without[came]:,}", f"{having[came]:,}"]
            for came in sorted(set(without) | set(having))
        ]
    return rows


def run_repeats(options: argparse.Namespace, folder: Path) -> Result:
    """The trials in small, again and again, beside processes that burn CPU."""
    size = SMALL if not options.full else FULL
    rounds: list[dict[str, object]] = []
    faults: list[str] = []
    with open_burners(options.burners, folder / "burners.log"):
        for number in range(1, options.rounds + 1):
            began = time.monotonic()
            replies = ("json", "sse")[number % 2]
            wrong = _repeat(folder / f"g{number}", size, replies)
            took_s, load = time.monotonic() - began, os.getloadavg()[0]
            faults += [f"round {number}: {what}" for what in wrong]
            rounds.append({"replies": replies, "took_s": took_s, "load": load, "faults": wrong})
            print(f"round {number}: {len(wrong)} faults, {took_s:.1f} s, load {load:.1f}")
    flakes = sum(bool(found["faults"]) for found in rounds)
    text = f"{len(rounds)} rounds beside {options.burners} burners: {flakes} of them with a fault"
    return Result(text=text, json={"burners": options.burners, "rounds": rounds}, faults=faults)


def _repeat(runtime_dir: Path, size: Size, replies: str) -> list[str]:
    """One round; what was wrong in it."""
    try:
        with _open_group(runtime_dir, env={"SESSIONS_MCP_REPLIES": replies}) as group:
            return asyncio.run(try_tools(group, size)).faults()
    except (AssertionError, httpx.HTTPError, httpx2.HTTPError, OSError) as error:
        return [repr(error)]


@contextlib.contextmanager
def _open_group(
    runtime_dir: Path,
    *,
    app: str = TOOL_APP,
    conf: Path = CONF,
    env: Mapping[str, str] | None = None,
) -> Iterator[RunningGroup]:
    """An environment on four shards.

    Raises:
        GroupError: It did not start, or left something.
    """
    group = start_group(runtime_dir=runtime_dir, shards=_SHARDS, app=app, conf=conf, env=env)
    try:
        yield group
    finally:
        wrong = group.close()
    if wrong:
        raise GroupError("; ".join(wrong))


def _parse_arguments(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.tools")
    parts = parser.add_subparsers(required=True, metavar="PART")
    calls = parts.add_parser("calls", help="calls a second, with and without a router")
    calls.add_argument("--rounds", type=int, default=5)
    calls.add_argument("--run-s", type=int, default=4, help="length of one run; whole seconds")
    calls.add_argument("--check", action="store_true", help="exit 1 if a goal is missed")
    calls.add_argument("--docs", type=Path, metavar="FILE", help="replace the figures of a page")
    calls.set_defaults(run=run_calls)
    episodes = parts.add_parser("episodes", help="thousands of episodes, and what is left of them")
    episodes.set_defaults(run=run_episodes, batch=400)
    sessions = parts.add_parser("sessions", help="the same with seeded sessions")
    sessions.set_defaults(run=run_sessions, batch=1000)
    for part in (episodes, sessions):
        part.add_argument("--count", type=int, default=4000)
        part.add_argument("--batch", type=int, help="how many at once")
        part.add_argument("--connections", type=int, default=32, help="kept ones that calls share")
    unclaimed = parts.add_parser("unclaimed", help="what breaks without the look-up of claims")
    unclaimed.add_argument("--small", action="store_true", help="a fifth of the episodes")
    unclaimed.set_defaults(run=run_unclaimed)
    repeats = parts.add_parser("repeats", help="the same trials again and again, beside burners")
    repeats.add_argument("--rounds", type=int, default=20)
    repeats.add_argument("--burners", type=int, default=2, help="processes that burn a core each")
    repeats.add_argument("--full", action="store_true", help="200 episodes and 50 clients a round")
    repeats.set_defaults(run=run_repeats)
    for part in parts.choices.values():
        part.add_argument("--json", type=Path, metavar="FILE", help="write every figure there")
    return parser.parse_args(arguments)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the part that the command line names; returns the exit code."""
    options = _parse_arguments(arguments)
    folder = Path(tempfile.mkdtemp(prefix="sesb", dir="/tmp"))  # short: sockets have 107 bytes
    try:
        result: Result = options.run(options, folder)
    except LoadError as error:
        print(f"the benchmark did not run: {error}", file=sys.stderr)
        return _NOT_RUN
    finally:
        shutil.rmtree(folder)
    print(result.text)
    for fault in result.faults:
        print(f"FAULT {fault}")
    if options.json is not None:
        options.json.write_text(json.dumps(result.json, indent=1) + "\n")
    if getattr(options, "docs", None) is not None:
        options.docs.write_text(replace_figures(options.docs.read_text(), result.text, _MARKS))
    return _FAULT if result.faults else 0


if __name__ == "__main__":
    sys.exit(main())
