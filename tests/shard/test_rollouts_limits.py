"""What a shard cannot hold, through the whole application: stored replay, replies in flight, disks.

Cases D26 and D27 of docs/cases.md.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from sessions.replay.file_store import FileReplayStore
from sessions.replay.session_file import Files, MemoryFiles, SpoolFiles
from sessions.tokens.prompts import PromptBuilder
from tests.support.raw_engine import Answer, Asked, raw_engine
from tests.support.raw_replies import length_reply
from tests.support.replay_files import FaultyFiles
from tests.support.rollouts import Rollouts, chat, create, error_of, open_parts
from tests.support.trials import Trial, no_fault, trials
from tests.support.turn_replies import Sampler
from tests.support.waiting import wait_until_async

MIB = 1 << 20


async def sessions_of(client: httpx.AsyncClient, count: int) -> list[str]:
    return [(await create(client))["session_id"] for _ in range(count)]


# --- stored replay


async def test_sessions_end_at_the_replay_budget_and_turns_a_quarter_above(prompts: PromptBuilder):
    sampler = Sampler(prompts, layers=64)  # 38 KB a turn
    async with (
        raw_engine(lambda asked: Answer(length_reply(sampler.body(asked)))) as engine,
        open_parts(
            prompts, f"http://127.0.0.1:{engine.port}", replay_budget_bytes="100000"
        ) as rollouts,
    ):
        client = rollouts.client
        sessions = await sessions_of(client, 5)
        for session in sessions[:3]:
            assert (await chat(client, session, "hi")).status_code == 200
        assert 100_000 <= rollouts.replay.stored_bytes < 125_000
        refused = await client.post("/sessions")
        assert error_of(refused, 503)["code"] == "overloaded"
        assert int(refused.headers["retry-after"]) > 0
        assert refused.headers["x-should-retry"] == "true"
        # Those that are open go on.
        assert (await chat(client, sessions[3], "hi")).status_code == 200
        assert rollouts.replay.stored_bytes >= 125_000
        asked = len(engine.asked)
        for session in sessions:
            for stream in (False, True):
                refused = await chat(client, session, "hi", stream=stream)
                assert error_of(refused, 503)["code"] == "replay_budget_exceeded"
                assert refused.headers["x-should-retry"] == "false"
                assert refused.headers["x-turn-recorded"] == "false"
        assert len(engine.asked) == asked
        # What is there can be fetched, and deleting it makes room at once.
        read = (await client.get(f"/sessions/{sessions[0]}")).json()
        assert len(read["records"]) == 1
        assert (await client.post(f"/sessions/{sessions[0]}/samples")).status_code == 200
        await client.delete(f"/sessions/{sessions[0]}")
        assert (await chat(client, sessions[1], "hi")).status_code == 200
        for session in sessions[1:3]:
            await client.delete(f"/sessions/{session}")
        assert (await client.post("/sessions")).status_code == 200


# --- replies in flight


async def test_eight_large_replies_at_once_fit_into_a_small_ingest_budget(prompts: PromptBuilder):
    sampler = Sampler(prompts, layers=1024, topk=64)  # 4.7 MiB a turn
    replies: dict[int, bytes] = {}

    def answer_of(asked: Asked) -> Answer:
        due = sampler.rows_due(asked)
        if due not in replies:
            replies[due] = length_reply(sampler.body(asked))
        return Answer(replies[due])

    most = 0

    async def watch(rollouts: Rollouts) -> None:
        nonlocal most
        while True:
            most = max(most, rollouts.core.ingest.held_bytes)
            await asyncio.sleep(0)

    async with (
        raw_engine(answer_of) as engine,
        open_parts(
            prompts, f"http://127.0.0.1:{engine.port}", ingest_budget_bytes=str(MIB)
        ) as rollouts,
    ):
        sessions = await sessions_of(rollouts.client, 8)
        watching = asyncio.create_task(watch(rollouts))
        turns = await asyncio.gather(*(chat(rollouts.client, s, "hi") for s in sessions))
        watching.cancel()
        assert {turn.status_code for turn in turns} == {200}
        assert not any("x-turn-recorded" in turn.headers for turn in turns)
        # The oldest is let on whatever it holds; each of the others passes by one piece at most.
        alone = len(next(iter(replies.values())))
        assert MIB < most <= alone + MIB + 8 * 262_144
        assert rollouts.core.ingest.held_bytes == 0
        assert rollouts.replay.stored_bytes > 8 * 4 * MIB
        (text,) = {
            (await rollouts.client.get(f"/sessions/{s}?fields=response")).json()["records"][0][
                "response"
            ]["choices"][0]["meta_info"]["routed_experts"]
            for s in sessions
        }
        assert text.encode() in next(iter(replies.values()))
        for session in sessions:
            await rollouts.client.delete(f"/sessions/{session}")
        assert rollouts.kept_bytes == (0, 0)


# --- disks


async def fails_for_want_of_room(trial: Trial, number: int) -> None:
    response = await trial.turn(fault=number, stream=bool(number % 2))
    error = error_of(response, 503)
    assert (error["type"], error["code"]) == ("server_error", "replay_store_failed")
    assert response.headers["x-should-retry"] == "false"
    assert response.headers["x-turn-recorded"] == "false"
    assert trial.tells_nothing(response)
    await trial.is_unchanged()


@pytest.mark.parametrize("kind", ["memory", "spool"])
async def test_a_turn_fails_while_there_is_no_room_and_the_session_goes_on_when_there_is(
    kind: str, prompts: PromptBuilder, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    real: Files = MemoryFiles() if kind == "memory" else SpoolFiles(tmp_path)
    files = FaultyFiles(real)
    monkeypatch.setattr(
        "sessions.shard.rollouts.open_replay_store", lambda _: FileReplayStore(files)
    )
    # Of a reply of 1.3 MB the last 400 KB are new.
    async with trials(prompts, no_fault, layers=128, topk=64) as begin:
        trial = await begin()
        for number, room_bytes in enumerate((0, 1, 100_000, 262_144, 300_000)):
            files.room_bytes = room_bytes
            await fails_for_want_of_room(trial, number)
            files.room_bytes = None
            await trial.go_on()


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of 3 MiB."""
    folder = tmp_path / "disk"
    folder.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=3m", "tmpfs", str(folder)]
    if subprocess.run(mount, capture_output=True, check=False).returncode:
        pytest.skip("no file system may be mounted here")
    yield folder
    subprocess.run(["umount", str(folder)], check=True)


def fill(path: Path) -> None:
    """Write a file until there is no room left."""
    with path.open("wb", buffering=0) as file, contextlib.suppress(OSError):
        while file.write(bytes(65536)):
            pass
    assert os.statvfs(path).f_bavail == 0


async def test_a_full_file_system_fails_turns_until_there_is_room(
    prompts: PromptBuilder, small_disk: Path
):
    free = os.statvfs(small_disk).f_bfree
    async with trials(prompts, no_fault, layers=128, topk=64, spool_dir=str(small_disk)) as begin:
        trial = await begin()
        assert os.statvfs(small_disk).f_bfree < free
        filler = small_disk / "filler"
        for number in range(2):
            fill(filler)
            await fails_for_want_of_room(trial, number)
            filler.unlink()
            await trial.go_on()
    # The sessions were deleted, and their blocks are free.
    await wait_until_async(lambda: os.statvfs(small_disk).f_bfree == free, "the disk is as before")
