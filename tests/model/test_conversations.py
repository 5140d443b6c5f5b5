"""Conversations with real groups are recorded as the model says, whatever client and engine do.

`MODEL_EXAMPLES=2000` for more scripts than the suite's. What happened how often is printed.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import re
import sys
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from typing import Final

import httpx
import pytest

from sessions.tokens.tokenizer import load_tokenizer
from tests.support.group import RunningGroup, open_groups
from tests.support.model_run import EXAMPLES, IS_FULL, SUITE_EXAMPLES
from tests.support.talk_engine import GatedEngine, open_gated_engine
from tests.support.talk_model import MAX_TREE_TURNS
from tests.support.talk_play import Count, Player
from tests.support.talk_says import FAULTS, SAYS
from tests.support.talk_scripts import SHAPES, play, script_of
from tests.support.waiting import DeadlineError, wait_until

_TURNS_TOTAL: Final = re.compile(r'sessile_turns_total\{.*outcome="(\w+)".*\} ([0-9.]+)$')


Cell = tuple[str, str, str]  # mode, step, outcome

ANY: Final = "any"
MODES: Final = ("linear", "tree")
FORMS: Final = ("plain", "stream")
MARKED: Final = ("marked first", "marked again", "marked key")


@dataclass(frozen=True, slots=True, kw_only=True)
class Stage:
    """A group, its engine, and the loop that drives both ends."""

    group: RunningGroup
    engine: GatedEngine
    runner: asyncio.Runner


@contextlib.contextmanager
def open_stage(shards: int, **env: str) -> Iterator[Stage]:
    with contextlib.ExitStack() as stack:
        groups = stack.enter_context(open_groups())
        runner = stack.enter_context(asyncio.Runner())
        opened = open_gated_engine(load_tokenizer("pkg:qwen3"))
        engine = runner.run(_enter(opened))
        stack.callback(lambda: runner.run(opened.__aexit__(None, None, None)))
        env = {
            "SESSIONS_ENGINE_URL": engine.url,
            "SESSIONS_ENGINE_DIALECT": "sglang",
            "SESSIONS_TOKENIZER": "pkg:qwen3",
            "SESSIONS_MAX_TREE_TURNS": str(MAX_TREE_TURNS),
            **env,
        }
        group = groups.start(shards=shards, env=env)
        yield Stage(group=group, engine=engine, runner=runner)


async def _enter(opened: contextlib.AbstractAsyncContextManager[GatedEngine]) -> GatedEngine:
    return await opened.__aenter__()


@pytest.mark.parametrize(
    ("shards", "cancels", "keepalive_s"),
    [(1, False, "0.05"), (3, False, "3"), (3, True, "0.05")],
    ids=["lone shard", "three shards", "three shards that cancel"],
)
@pytest.mark.timeout(7200 if IS_FULL else 240)
def test_conversations_are_recorded_as_the_model_says(
    shards: int, keepalive_s: str, *, cancels: bool
):
    encode = lru_cache(maxsize=4096)(load_tokenizer("pkg:qwen3").encode)
    count: Count = Count()
    ends: Counter[str] = Counter()
    name = f"{shards} shards, cancels {cancels}"
    env = {
        "SESSIONS_CANCEL_ON_DISCONNECT": str(int(cancels)),
        "SESSIONS_SSE_KEEPALIVE_S": keepalive_s,
    }
    with open_stage(shards, **env) as stage:
        for number in range(EXAMPLES):
            script = script_of(f"{name} {number}")
            player = Player(stage.group.address, stage.engine, encode, count, cancels=cancels)
            try:
                stage.runner.run(play(player, script))
            except BaseException as error:
                error.add_note(f"script {number} of {name}: {script}")
                raise
            ends += player.ends
        check_totals(stage, ends)
    report(name, count)
    if EXAMPLES >= SUITE_EXAMPLES:
        reached = {*count, *((ANY, step, what) for _, step, what in count)}
        assert sorted(due_cells(cancels=cancels) - reached) == []


def check_totals(stage: Stage, ends: Counter[str]) -> None:
    """The group counted each turn once, and how it ended; its numbers are up to a second old."""

    told: Counter[str] = Counter()

    def is_told() -> bool:
        told.clear()
        for line in httpx.get(f"{stage.group.url}/metrics").text.splitlines():
            if found := _TURNS_TOTAL.match(line):
                told[found[1]] += int(float(found[2]))
        doubt = told["failed"] - ends["failed"]
        is_sure = all(told[how] == ends[how] for how in ("recorded", "unrecorded"))
        return is_sure and 0 <= doubt <= ends["perhaps failed"]

    try:
        wait_until(is_told, f"turns ended as the model says, {ends}")
    except DeadlineError as error:
        error.add_note(f"the group says {told}")
        raise


def due_cells(*, cancels: bool) -> set[Cell]:
    """What must have happened at least once, so that the model does not shrink unseen.

    Rare things need not have happened in sessions of both modes: what comes of a storm or a rush
    depends on time, and with it what follows.
    """
    left = {*itertools.product(MODES, ["hang up"], ["turn goes on"]), (ANY, "alone", "recorded")}
    return {
        *itertools.product([ANY], ["engine"], [*SAYS, *FAULTS]),
        *itertools.product([ANY], [s for s in SHAPES if s != "retry"], ["recorded"]),
        (ANY, "retry", "repeated"),
        *itertools.product([ANY], [*FORMS, *MARKED], ["joined", "session_gone", "failed"]),
        *itertools.product([ANY], [*FORMS, *MARKED[1:]], ["repeated"]),
        *itertools.product([ANY], ["stranger"], ["session_not_found"]),
        *itertools.product([ANY], ["wrong"], ["invalid_request"]),
        *itertools.product([ANY], ["delete"], ["410"]),
        *itertools.product(MODES, ["delete"], ["204"]),
        *itertools.product(MODES, ["storm", "rush", *FORMS, *MARKED], ["recorded"]),
        *itertools.product(MODES, ["rush", *FORMS, "marked first"], ["unrecorded"]),
        *itertools.product(MODES, ["marked key"], ["idempotency_key_reused"]),
        *itertools.product(MODES, ["marked first"], ["turn_limit_reached", "token_limit_reached"]),
        *itertools.product(MODES, ["look"], [*(f"{n} turns" for n in range(5)), "session_gone"]),
        *itertools.product(["linear"], ["next", "rush"], ["joined", "unrecorded"]),
        ("linear", "marked first", "history_mismatch"),
        ("linear", "storm", "unrecorded"),
        ("tree", "next", "turn_truncated"),
        *(itertools.product(MODES, ["hang up"], ["turn cancelled"]) if cancels else left),
    }


def report(name: str, count: Count) -> None:
    """Print how often each kind of step had each outcome."""
    lines = [f"model of conversations: {name}, {EXAMPLES} scripts\n"]
    lines += [
        f"{mode:7} {step:12} {what:25} {n}\n" for (mode, step, what), n in sorted(count.items())
    ]
    sys.stdout.writelines(lines)
