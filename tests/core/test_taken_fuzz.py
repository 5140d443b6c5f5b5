"""A reply taken apart says what the whole one says, whatever it is: the law, on many bodies."""

import json
import os
from random import Random

import pytest

from sessions.core.json_text import Json, parse_engine_json
from sessions.core.replay_fields import take_replay_fields
from sessions.core.taken_reply import TakenReply, read_taken
from sessions.replay.budget import IngestBudget
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


async def taken_of(rng: Random, store: SlowStore, body: bytes) -> TakenText:
    intake = Intake(store, "s", IngestBudget(1 << 30))
    for piece in pieces_of(rng, body):
        if not intake.feed(piece):
            await intake.wait_room()
    taken = await intake.finish()
    assert store.writers == []
    assert taken.restore() == body
    return taken


async def check(rng: Random, store: SlowStore, body: bytes) -> str:
    """Compare both ways to read a body; says which kind of case it was."""
    taken = await taken_of(rng, store, body)
    try:
        whole, is_strict = parse_engine_json(body)
    except ValueError:
        whole, is_strict = ValueError, False
    try:
        reply: TakenReply | None = await read_taken(taken)
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


@pytest.mark.timeout(60 + CASES // 50)
async def test_a_reply_taken_apart_is_read_as_the_whole_one():
    seen: dict[str, int] = {}
    store = SlowStore()
    for case in range(CASES):
        rng = Random(SEED + case)
        if case % 16 == 0:
            takes = rng.choice((7, 200, *[1 << 20] * 6))
            store = SlowStore(takes=takes, is_on_disk=rng.random() < 0.05)
        body = body_of(rng)
        try:
            kind = await check(rng, store, body)
        except BaseException as error:
            error.add_note(f"case {case} of seed {SEED}: {body!r}")
            raise
        seen[kind] = seen.get(kind, 0) + 1
    for kind in ("no JSON", "no JSON, with blobs", "nothing taken", "taken", "put back"):
        assert seen.get(kind, 0) > CASES // 100, seen
