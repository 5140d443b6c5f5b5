"""The store against a model: every blob bit for bit, whatever else happens meanwhile."""

from __future__ import annotations

import asyncio
import os
import random
import tempfile
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import pairwise
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sessions.replay.blob import StoredBlob
from sessions.replay.blob_writer import StoreWriter
from sessions.replay.file_store import FileReplayStore
from sessions.replay.session_file import MemoryFiles, SpoolFiles
from tests.support.replay_files import SMALL_REGION_BYTES, FaultyFiles

PAGE = 4096


def grown_texts(seed: int) -> list[bytes]:
    """Texts that begin alike at random: turns, branches, turns tried again, `.npy` blobs."""
    made = random.Random(seed)
    texts = [b"", b"k05VTVBZAQB2" + bytes(made.choices(b"AQgw", k=300))]
    for _ in range(8):
        old = made.choice(texts)
        keep = len(old) if made.random() < 0.6 else made.randrange(len(old) + 1)
        texts.append(old[:keep] + made.randbytes(made.choice([0, 1, 3, 500, 9000])))
    return texts


class Arena:
    """A store, what it should hold, and what is being written."""

    def __init__(self, store: FileReplayStore, seed: int) -> None:
        self.store = store
        self.texts = grown_texts(seed)
        self.known: dict[str, list[bytes]] = {"a": [], "b": []}
        self.held: dict[StoredBlob, bytes] = {}  # readable
        self.live: dict[StoredBlob, str] = {}  # not discarded, with the session
        self.pins: list[StoredBlob] = []
        self.open: list[tuple[StoreWriter, str, bytes, int]] = []

    async def step(self, step: str, draw: Callable[[int], int]) -> None:
        session = "ab"[draw(1)]
        if step == "begin":
            text = self.texts[draw(len(self.texts) - 1)]
            self.open.append((self.store.begin(session, "f"), session, text, 0))
        elif step in ("feed", "finish", "abort") and self.open:
            await self.write(step, draw)
        elif step == "drop":
            self.store.drop_session(session)
            for blob in [blob for blob, owner in self.live.items() if owner == session]:
                self.forget(blob)
        elif step == "discard" and self.live:
            blob = list(self.live)[draw(len(self.live) - 1)]
            self.store.discard(self.live[blob], [blob])
            self.forget(blob)
        elif step == "pin" and self.held:
            self.pins.append(list(self.held)[draw(len(self.held) - 1)])
            self.pins[-1].pin()
        elif step == "unpin" and self.pins:
            blob = self.pins.pop(draw(len(self.pins) - 1))
            blob.unpin()
            if blob not in self.live and blob not in self.pins:
                del self.held[blob]

    async def write(self, step: str, draw: Callable[[int], int]) -> None:
        writer, session, text, done = self.open.pop(draw(len(self.open) - 1))
        if step == "abort":
            writer.abort()
            return
        stop = len(text) if step == "finish" else min(len(text), done + draw(12_000))
        while done < stop:
            piece = text[done:stop]
            taken, shared = writer.feed_nowait(memoryview(piece))
            equal = text[done : done + shared]
            assert not shared or any(k[done : done + shared] == equal for k in self.known[session])
            done += taken
            if taken < len(piece):
                await writer.wait_ready()
        if step == "feed":
            self.open.append((writer, session, text, done))
            return
        blob = await writer.finish()
        self.known[session].append(text)
        self.held[blob], self.live[blob] = text, session

    def forget(self, blob: StoredBlob) -> None:
        del self.live[blob]
        if blob not in self.pins:
            del self.held[blob]

    def check(self) -> None:
        for blob, text in self.held.items():
            assert blob.read(0, len(text)) == text
            part = blob.read_nowait(len(text) // 3, len(text) // 2)
            assert part is None or part == text[len(text) // 3 : len(text) // 2]
        stored = self.store.stored_bytes
        assert stored >= max(map(len, self.held.values()), default=0)
        if self.open:  # what they compare with is pinned
            return
        assert self.store.usage().unfinished_bytes == 0 or self.store.waits
        assert stored <= sum(map(len, self.held.values())) or self.store.waits
        assert self.store.usage().blobs == len(self.held)
        if not self.store.waits:
            self.check_pages()

    def check_pages(self) -> None:
        """No file has a page that no blob needs."""
        for blobs in [*self.store._sessions.values(), *self.store._dropped]:
            file, counts = blobs.space.file, blobs.space._counts
            pages: set[int] = set()
            for (start, stop), count in zip(pairwise(counts._at), counts._counts, strict=False):
                if count:
                    pages.update(range(start // PAGE, (stop - 1) // PAGE + 1))
            taken = 0 if file is None else os.fstat(file._fd).st_blocks * 512
            assert taken <= len(pages) * PAGE

    def end(self) -> None:
        for writer, *_ in self.open:
            writer.abort()
        for blob, session in self.live.items():
            self.store.discard(session, [blob])
        for blob in self.pins:
            blob.unpin()


def open_files() -> int:
    for thread in threading.enumerate():
        if thread.name == "sessile-replay-close":
            thread.join()
    return len(os.listdir("/proc/self/fd"))


@contextmanager
def stores(kind: str) -> Iterator[FileReplayStore]:
    with tempfile.TemporaryDirectory() as folder:
        real = SpoolFiles(Path(folder)) if "spool" in kind else MemoryFiles()
        files = FaultyFiles(real, region_bytes=SMALL_REGION_BYTES if "small" in kind else 0)
        files.coldness = 0.5 if "cold" in kind else 0.0
        store = FileReplayStore(files)
        yield store
        store.close()


STEPS = ["begin", "begin", "feed", "feed", "finish", "finish", "abort", "discard", "pin", "unpin"]


@pytest.mark.parametrize("kind", ["memory", "memory small", "spool", "spool small cold"])
@settings(derandomize=True, deadline=None, max_examples=60)
@given(
    steps=st.lists(st.sampled_from([*STEPS, "drop"]), min_size=10, max_size=60),
    seed=st.integers(0, 1000),
)
def test_every_blob_is_kept_bit_for_bit_until_nobody_needs_it(
    kind: str, steps: list[str], seed: int
):
    before = open_files()
    chance = random.Random(seed)

    async def play(arena: Arena) -> None:
        for step in steps:
            await arena.step(step, lambda most: chance.randint(0, most))
            arena.check()
        arena.end()

    with stores(kind) as store:
        asyncio.run(play(Arena(store, seed)))
    usage = store.usage()
    assert (usage.sessions, usage.blobs, usage.stored_bytes) == (0, 0, 0)
    assert (usage.unfinished_bytes, usage.files) == (0, 0)
    assert open_files() == before
