"""Memory over many sessions with replay, opt-in: SOAK=1 (minutes, and some 2 GiB of memory)."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Sequence
from contextlib import AbstractAsyncContextManager
from pathlib import Path
from typing import Final

import pytest

from benchmarks.shape import MIB, Shape
from benchmarks.stand import open_engines
from benchmarks.trainer import Conversation, converse, open_conversations
from benchmarks.weight import Weight, read_weight
from tests.support.group import Groups, RunningGroup
from tests.support.waiting import wait_until_async

SHARDS: Final = 2
SHAPE: Final = Shape(sessions=400, turns=20, final_body_bytes=2 * MIB)  # 1 MiB on average
WARM: Final = Shape(sessions=40, turns=3, final_body_bytes=2 * MIB)
FREED_DEADLINE_S: Final = 30.0
BACK: Final = 1.1  # of what the group weighed before
SLACK: Final = 0.1  # of what the sessions weighed

pytestmark = [
    pytest.mark.skipif(not os.environ.get("SOAK"), reason="SOAK=1 runs it"),
    pytest.mark.timeout(1800),
]


def weight_of(group: RunningGroup) -> Weight:
    return read_weight(group.pids.values())


def at_most(group: RunningGroup, limit_bytes: float) -> Callable[[], bool]:
    return lambda: weight_of(group).memory_bytes <= limit_bytes


def conversations_of(
    group: RunningGroup, shape: Shape
) -> AbstractAsyncContextManager[list[Conversation]]:
    return open_conversations(group.address, shape.targets(), shape.row_bytes, count=shape.sessions)


async def hold(shape: Shape, found: Sequence[Conversation]) -> None:
    talk = await converse(found)
    assert talk.failures == []
    assert len(talk.turns) == shape.sessions * shape.turns


async def delete(conversations: Sequence[Conversation]) -> None:
    for conversation in conversations:
        await conversation.delete()


async def soak(group: RunningGroup, weights: list[Weight]) -> None:
    """Warm up, fill, delete half, delete all; what is weighed goes to `weights`."""
    # What is loaded at first use, and what an allocator keeps, is there from now on.
    async with conversations_of(group, WARM) as found:
        await hold(WARM, found)
        await delete(found)
    weights.append(weight_of(group))
    idle = weights[-1].memory_bytes
    async with conversations_of(group, SHAPE) as found:
        await hold(SHAPE, found)
        weights.append(weight_of(group))
        full = weights[-1].memory_bytes
        half = len(found) // 2
        await delete(found[:half])
        limit = idle + (full - idle) * (0.5 + SLACK)
        await wait_until_async(at_most(group, limit), "half is free", FREED_DEADLINE_S)
        weights.append(weight_of(group))
        await delete(found[half:])
    await wait_until_async(at_most(group, idle * BACK), "all is free", FREED_DEADLINE_S)
    assert full > idle + SHAPE.sessions * MIB, "the sessions weigh something"


async def test_memory_follows_the_sessions_and_comes_back(groups: Groups, tmp_path: Path):
    weights: list[Weight] = []
    with open_engines(tmp_path, 1, SHAPE.engine_options(0)) as engines:
        env = {
            "SESSIONS_ENGINE_URL": engines.urls[0],
            "SESSIONS_TOKENIZER": "pkg:qwen3",
            "SESSIONS_ROUTING_REPLAY": "1",
        }
        group = groups.start(shards=SHARDS, env=env)
        try:
            await soak(group, weights)
        finally:
            weights.append(weight_of(group))
            told = " ".join(
                f"{each.pss_bytes / MIB:,.0f}+{each.memory_file_bytes / MIB:,.0f}"
                for each in weights
            )
            sys.stdout.write(f"MiB, processes+files: idle, full, half, end: {told}\n")
