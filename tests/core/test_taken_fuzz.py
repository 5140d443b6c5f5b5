"""A reply taken apart says what the whole one says, whatever it is: the law, on many bodies."""

import itertools
import json
import os
from collections.abc import Iterator
from pathlib import Path
from random import Random

import pytest

from sessions.core.engine_replies.replay_fields import take_replay_fields
from sessions.core.engine_replies.taken_reply import TakenReply, read_taken
from sessions.core.texts.json_text import Json, parse_engine_json
from sessions.core.texts.shared_text import IdsText
from sessions.replay.blobs import ReplayStore
from sessions.replay.budget import IngestBudget
from sessions.replay.file_store import open_replay_store
from sessions.replay.intake import Intake
from sessions.replay.splice import SplicedText
from sessions.replay.taken import TakenText
from tests.support.reply_bodies import body_of, pieces_of
from tests.support.slow_store import SlowStore

CASES = int(os.environ.get("SESSIONS_TEST_FUZZ_CASES", "20000"))
SEED = int(os.environ.get("SESSIONS_TEST_FUZZ_SEED", "0"))


def joined(text: SplicedText) -> bytes:
    return b"".join(
        part if isinstance(part, bytes) else part.read(0, part.size_bytes) for part in text.parts
    )


def exact(value: Json) -> str:
    """Tells 1 from 1.0 and True, and the order of members."""
    return json.dumps(value)


async def taken_of(rng: Random, store: ReplayStore, body: bytes) -> TakenText:
    intake = Intake(store, "s", IngestBudget(1 << 30))
    for piece in pieces_of(rng, body):
        if not intake.feed(piece):
            await intake.wait_room()
    taken = await intake.finish()
    intake.abort()
    assert taken.restore() == body
    return taken


async def check(rng: Random, store: ReplayStore, body: bytes) -> str:
    """Compare both ways to read a body; says which kind of case it was."""
    taken = await taken_of(rng, store, body)
    kind = await compare(taken, body)
    if rng.random() < 0.3:  # no turn was made of it
        store.discard("s", [blob.blob for blob in taken.blobs])
    return kind


async def compare(taken: TakenText, body: bytes) -> str:
    try:
        whole, is_strict = parse_engine_json(body)
    except ValueError:
        whole, is_strict = ValueError, False
    try:
        reply: TakenReply | None = await read_taken(taken, IdsText())
    except ValueError:
        reply = None
    if reply is None or whole is ValueError:
        assert reply is None
        assert whole is ValueError
        return "no JSON, with blobs" if taken.blobs else "no JSON"
    text = exact(whole)
    fields = [
        (field, blob.encode("utf-8", "surrogatepass")) for field, blob in take_replay_fields(whole)
    ]
    assert exact(reply.value) == exact(whole)
    assert reply.is_strict == is_strict
    assert [(field, blob.read(0, blob.size_bytes)) for field, blob in reply.replay] == fields
    assert joined(reply.raw) == body
    assert reply.raw.blobs == [blob.blob for blob in taken.blobs]
    if not is_strict:
        assert exact(json.loads(joined(reply.strict))) == text
    else:
        assert reply.strict is reply.raw
    if not taken.blobs:
        return "nothing taken"
    return (
        "taken"
        if {id(b) for b in reply.raw.blobs} <= {id(b) for _, b in reply.replay}
        else "put back"
    )


async def run(stores: Iterator[ReplayStore], cases: int) -> dict[str, int]:
    seen: dict[str, int] = {}
    for case, store in enumerate(itertools.islice(stores, cases)):
        rng = Random(SEED + case)
        body = body_of(rng)
        try:
            kind = await check(rng, store, body)
        except BaseException as error:
            error.add_note(f"case {case} of seed {SEED}: {body!r}")
            raise
        seen[kind] = seen.get(kind, 0) + 1
    return seen


def slow_stores() -> Iterator[SlowStore]:
    rng = Random(SEED)
    while True:
        store = SlowStore(
            takes=rng.choice((7, 200, *[1 << 20] * 6)), is_on_disk=rng.random() < 0.05
        )
        for _ in range(16):
            yield store
            assert store.writers == []


@pytest.mark.timeout(60 + CASES // 50)
async def test_a_reply_taken_apart_is_read_as_the_whole_one():
    seen = await run(slow_stores(), CASES)
    for kind in ("no JSON", "no JSON, with blobs", "nothing taken", "taken", "put back"):
        assert seen.get(kind, 0) > CASES // 100, seen


@pytest.mark.timeout(60 + CASES // 50)
@pytest.mark.parametrize("place", ["memory", "spool"])
async def test_the_store_gives_back_what_it_took(place: str, tmp_path: Path):
    store = open_replay_store(str(tmp_path) if place == "spool" else "")
    usage = store.usage()

    def stores() -> Iterator[ReplayStore]:
        while True:
            for _ in range(40):
                yield store
            store.drop_session("s")

    await run(stores(), CASES // (10 if place == "memory" else 40))
    store.drop_session("s")
    assert store.usage() == usage
    store.close()
