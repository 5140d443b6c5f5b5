"""What a turn of a long session costs: its prompt, and how long a shard's loop lets others wait.

`python -m benchmarks.turns` first makes the prompt of one more turn, in this process, in the way
the server does and by rendering and encoding the whole history, in turns. Then it starts a lone
shard and a simulated engine, holds sessions whose histories have as many tokens, lets all of them
take turns at once, and meanwhile asks the shard small questions. Small by default; the documented
figures are those of `--sessions 64 --rounds 5`.

Spec: docs/benchmark.md#turns
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import json
import random
import shutil
import sys
import tempfile
import time
from array import array
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Final

from benchmarks.figures import Verdict, spread_of
from benchmarks.load import LoadError
from benchmarks.samples import percentile_of
from benchmarks.shape import text_of_tokens
from benchmarks.stand import Probing, open_engines
from benchmarks.usage import read_cpu_s
from sessions.tokens.prompts import PromptBuilder, load_prompt_builder
from tests.support.group import start_group
from tests.support.raw import AsyncRawConnection, open_raw, request_bytes

_TOKENIZER: Final = "pkg:qwen3"
_NEW_TOKENS: Final = 512
_PROMPTS: Final = 20
_FILL_TURNS: Final = 8
_TIMEOUT_S: Final = 300.0
_QUIET_S: Final = 1.0  # before each round
_SHARD: Final = "shard 0"


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """What to measure.

    Attributes:
        token_count: Tokens of a history, about.
        session_count: How many sessions take turns at once; 0 to make prompts alone.
        turn_count: Turns of each session in a round.
        engine_s: Seconds of the engine for a reply, on average.
        round_count: Rounds that count.
    """

    token_count: int
    session_count: int
    turn_count: int
    engine_s: float
    round_count: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Round:
    """All sessions take some turns.

    Attributes:
        turn_count: Turns of all sessions.
        wall_s: From the first request to the last reply.
        cpu_s: Of the shard, small questions included.
        idle_ms: Waits of small questions before, one per question that was due.
        busy_ms: The same meanwhile.
    """

    turn_count: int
    wall_s: float
    cpu_s: float
    idle_ms: list[float]
    busy_ms: list[float]


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """All that was measured.

    Attributes:
        options: What was asked for.
        joined_s: CPU of a prompt that is joined to its checkpoint, each time.
        whole_s: CPU of the same prompt rendered and encoded as a whole, each time.
        rounds: The first one, which warms up, left out.
    """

    options: Options
    joined_s: list[float]
    whole_s: list[float]
    rounds: list[Round]


def verdicts_of(outcome: Outcome) -> list[Verdict]:
    """The goals and what was measured."""
    pairs = zip(outcome.whole_s, outcome.joined_s, strict=True)
    ratios = [whole / joined for whole, joined in pairs]
    found = [
        Verdict(
            what="CPU of a whole rendering, x", limit=10.0, at_least=True, got=spread_of(ratios)
        )
    ]
    if outcome.rounds:
        waits = [percentile_of(each.busy_ms, 0.99) for each in outcome.rounds]
        found.append(
            Verdict(
                what="p99 of small questions meanwhile, ms",
                limit=50.0,
                at_least=False,
                got=spread_of(waits),
            )
        )
    return found


def render(outcome: Outcome) -> str:
    """The figures as text."""
    joined, whole = spread_of(outcome.joined_s), spread_of(outcome.whole_s)
    lines = [
        f"a prompt of {outcome.options.token_count} tokens, {_NEW_TOKENS} of them new",
        f"joined     {joined.median * 1e3:8.2f} CPU ms",
        f"as a whole {whole.median * 1e3:8.2f} CPU ms",
    ]
    if outcome.rounds:
        cpu = spread_of([each.cpu_s * 1e3 / each.turn_count for each in outcome.rounds])
        rate = spread_of([each.turn_count / each.wall_s for each in outcome.rounds])
        idle = [wait for each in outcome.rounds for wait in each.idle_ms]
        lines += [
            f"{outcome.options.session_count} sessions, {rate.median:.1f} turns a second",
            f"CPU of the shard {cpu.median:.1f} ms a turn ({cpu.low:.1f}-{cpu.high:.1f})",
            f"small questions while idle: p99 {percentile_of(idle, 0.99):.1f} ms",
        ]
    lines += [verdict.line() for verdict in verdicts_of(outcome)]
    return "\n".join(lines)


def measure_prompts(builder: PromptBuilder, token_count: int) -> tuple[list[float], list[float]]:
    """Make the prompt of one more turn in both ways, in turns.

    Args:
        builder: Of any family whose template only appends.
        token_count: Tokens of the history, about.

    Returns:
        CPU seconds of joining, of rendering and encoding the whole; the same number of each.

    Raises:
        ValueError: The template does not only append.
    """
    history: list[dict[str, object]] = []
    for number in range(token_count // _NEW_TOKENS):
        text = text_of_tokens(_NEW_TOKENS, f"{number}")
        history.append({"role": "assistant" if number % 2 else "user", "content": text})
    history.append({"role": "assistant", "content": "so it is"})
    checkpoint = array("I", builder.whole(history))
    new = [{"role": "user", "content": text_of_tokens(_NEW_TOKENS, "new")}]
    joined, whole = [], []
    for _ in range(_PROMPTS):
        begin_s = time.process_time()
        joint = builder.join(checkpoint, history[-1], new, offset=len(history))
        prompt = checkpoint[: joint.kept_count]
        prompt.extend(joint.added_ids)
        joined.append(time.process_time() - begin_s)
        begin_s = time.process_time()
        rendered = array("I", builder.first([*history, *new]))
        whole.append(time.process_time() - begin_s)
        if rendered[: len(checkpoint)] != checkpoint:
            raise ValueError("the two prompts differ")
    return joined, whole


class _Talk:
    """One session of the lone shard, its connection, and its conversation so far."""

    def __init__(self, connection: AsyncRawConnection, session: str) -> None:
        self._connection = connection
        self._target = f"/sessions/{session}/v1/chat/completions"
        self._random = random.Random(session)
        self._messages: list[dict[str, Any]] = []

    async def wait_turn(self, most_s: float) -> None:
        """Wait a part of a time: agents do not all begin at one moment."""
        await asyncio.sleep(self._random.uniform(0.0, most_s))

    async def take_turn(self, new_tokens: int, engine_s: float) -> None:
        """Say so many tokens and take the reply, for which the engine takes about so long."""
        text = text_of_tokens(new_tokens, f"{self._random.random()}")
        self._messages.append({"role": "user", "content": text})
        script = {"content": "so it is", "delay_s": engine_s * self._random.uniform(0.5, 1.5)}
        body = {"model": "sim", "messages": self._messages, "sim": script}
        reply = await _ask(self._connection, self._target, json.dumps(body).encode())
        self._messages.append(json.loads(reply)["choices"][0]["message"])


async def _ask(connection: AsyncRawConnection, target: str, body: bytes = b"") -> bytes:
    reply = await connection.ask(request_bytes("POST", target, body=body))
    if reply.status != 200:
        raise LoadError(f"POST {target} got {reply.status}: {reply.body[:200]!r}")
    return reply.body


async def _hold(address: tuple[str, int], pid: int, options: Options) -> list[Round]:
    """Fill the sessions, then run all rounds; the first one, which warms up, is left out."""
    found: list[Round] = []
    async with contextlib.AsyncExitStack() as stack:
        talks: list[_Talk] = []
        session = ""
        for _ in range(options.session_count + 1):  # the last one stays empty, for the prober
            connection = await stack.enter_async_context(open_raw(address, timeout_s=_TIMEOUT_S))
            session = json.loads(await _ask(connection, "/sessions"))["session_id"]
            talks.append(_Talk(connection, session))
        talks.pop()
        for number in range(_FILL_TURNS):
            print(f"filling, {number} of {_FILL_TURNS}", file=sys.stderr, flush=True)
            for talk in talks:
                await talk.take_turn(options.token_count // _FILL_TURNS, 0.0)
        for number in range(options.round_count + 1):
            print(f"round {number} of {options.round_count}", file=sys.stderr, flush=True)
            with Probing(address, [session]) as probing:
                await asyncio.sleep(_QUIET_S)
                begin_s, cpu_s = time.monotonic(), read_cpu_s(pid)
                await asyncio.gather(*(_run(talk, options) for talk in talks))
                end_s, spent_s = time.monotonic(), read_cpu_s(pid) - cpu_s
                waits = await asyncio.to_thread(probing.stop)
            found.append(
                Round(
                    turn_count=options.turn_count * len(talks),
                    wall_s=end_s - begin_s,
                    cpu_s=spent_s,
                    idle_ms=[ms for at_s, ms in waits if at_s + ms / 1e3 < begin_s],
                    busy_ms=[ms for at_s, ms in waits if begin_s <= at_s + ms / 1e3 < end_s],
                )
            )
    return found[1:]


async def _run(talk: _Talk, options: Options) -> None:
    await talk.wait_turn(options.engine_s)
    for _ in range(options.turn_count):
        await talk.take_turn(_NEW_TOKENS, options.engine_s)


def measure_sessions(folder: Path, options: Options) -> list[Round]:
    """Start an engine and a lone shard, hold the sessions, run all rounds.

    Raises:
        LoadError: A server answered with an error or did not start.
        GroupError: The shard did not start.
    """
    with open_engines(folder, 1, {"context": str(4 * options.token_count)}) as engines:
        settings = {"SESSIONS_ENGINE_URL": engines.urls[0], "SESSIONS_TOKENIZER": _TOKENIZER}
        group = start_group(runtime_dir=folder / "group", shards=1, env=settings)
        try:
            return asyncio.run(_hold(group.address, group.pids[_SHARD], options))
        finally:
            for wrong in group.close():
                print(f"the shard: {wrong}\n{group.log()}", file=sys.stderr)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the benchmark; returns the exit code."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.turns")
    parser.add_argument("--tokens", type=int, default=32768, help="of a history, about")
    parser.add_argument("--sessions", type=int, default=8, help="at once; 0: only make prompts")
    parser.add_argument("--turns", type=int, default=3, help="of each session in a round")
    parser.add_argument("--engine-s", type=float, default=4.0, help="of the engine, for a reply")
    parser.add_argument("--rounds", type=int, default=1)
    parser.add_argument("--json", type=Path, metavar="FILE", help="write every sample there")
    told = parser.parse_args(arguments)
    options = Options(
        token_count=told.tokens,
        session_count=told.sessions,
        turn_count=told.turns,
        engine_s=told.engine_s,
        round_count=told.rounds,
    )
    joined_s, whole_s = measure_prompts(load_prompt_builder(_TOKENIZER), options.token_count)
    rounds: list[Round] = []
    if options.session_count:
        folder = Path(tempfile.mkdtemp(prefix="sess", dir="/tmp"))  # short: sockets have 107 bytes
        try:
            rounds = measure_sessions(folder, options)
        finally:
            shutil.rmtree(folder)
    outcome = Outcome(options=options, joined_s=joined_s, whole_s=whole_s, rounds=rounds)
    print(render(outcome))
    if told.json is not None:
        told.json.write_text(json.dumps(asdict(outcome), indent=1))
    return 0


if __name__ == "__main__":
    sys.exit(main())
