"""Blobs of a reply stay only if the turn keeps them, whatever else happens."""

import asyncio
import json

import pytest

from sessions.core.texts.shared_text import IdsText
from sessions.core.turns.asking import Asking, Received
from sessions.engine.engine import EngineReply, EngineRequest
from sessions.errors.engine import EngineReplyUnusableError, EngineUnreachableError
from sessions.replay.budget import IngestBudget
from sessions.replay.file_store import FileReplayStore, open_replay_store
from tests.support.engines import ScriptedEngine, json_reply

BLOB = "QUJD" * 1000
REQUEST = EngineRequest(method="POST", target=b"/", headers=(), body=b"")
DOCUMENT = {"choices": [{"meta_info": {"routed_experts": BLOB}}]}


class Desk:
    """An asking on a scripted engine."""

    def __init__(self, *answers: EngineReply | Exception) -> None:
        self.engine = ScriptedEngine(*answers)
        self.store: FileReplayStore = open_replay_store("")
        self.budget = IngestBudget(1 << 30)
        self.asking = Asking(engine=self.engine, replay=self.store, budget=self.budget)

    async def ask(self, *, is_kept: bool = False, error: Exception | None = None) -> Received:
        """Ask, and do with the reply what is said."""
        async with self.asking.ask("s", REQUEST, IdsText()) as received:
            if error is not None:
                raise error
            received.is_kept = is_kept
        return received

    @property
    def held_bytes(self) -> int:
        """In the store and in flight."""
        return self.store.stored_bytes + self.budget.held_bytes


async def test_what_is_kept_stays_and_what_is_not_goes():
    desk = Desk(json_reply(DOCUMENT))
    received = await desk.ask()
    assert received.taken is not None
    assert received.taken.value == {"choices": [{"meta_info": {}}]}
    assert BLOB.encode() not in received.text
    assert desk.held_bytes == 0
    await desk.ask(is_kept=True)
    assert desk.store.stored_bytes >= len(BLOB)
    assert desk.budget.held_bytes == 0


async def test_the_bytes_of_every_200_are_counted_however_it_ends():
    desk = Desk(json_reply(DOCUMENT), json_reply(b"<html>"), json_reply(DOCUMENT, 400))
    await desk.ask()
    assert desk.asking.received_bytes == len(json.dumps(DOCUMENT))
    with pytest.raises(EngineReplyUnusableError):
        await desk.ask()
    await desk.ask()
    assert desk.asking.received_bytes == len(json.dumps(DOCUMENT)) + len(b"<html>")


async def test_nothing_stays_of_a_turn_that_fails():
    desk = Desk(json_reply(DOCUMENT))
    with pytest.raises(KeyError):
        await desk.ask(is_kept=True, error=KeyError("x"))
    assert desk.held_bytes == 0


async def test_nothing_stays_when_the_engine_fails_after_its_blob():
    desk = Desk(EngineUnreachableError("cut"))
    with pytest.raises(EngineUnreachableError):
        await desk.ask()
    assert desk.held_bytes == 0


@pytest.mark.parametrize(
    "raw", [b"", b"<html>", json.dumps(DOCUMENT).encode()[:-1], b"\xff\xfe", b"[" * 100_000]
)
async def test_a_reply_that_cannot_be_read_is_refused_and_leaves_nothing(raw: bytes):
    desk = Desk(json_reply(raw))
    with pytest.raises(EngineReplyUnusableError) as caught:
        await desk.ask()
    assert "QUJD" not in caught.value.message
    assert desk.held_bytes == 0


async def test_a_reply_that_can_be_parsed_but_not_be_written_again_is_refused():
    # Writing needs a few frames more than parsing; where that is depends on the caller's.
    messages = set()
    for depth in range(700, 1000):
        desk = Desk(json_reply(b'{"n":NaN,"x":' + b"[" * depth + b"]" * depth + b"}"))
        try:
            await desk.ask()
        except EngineReplyUnusableError as error:
            messages.add(error.message.partition(":")[0])
        assert desk.held_bytes == 0
    assert messages == {
        "the engine's reply is nested too deeply",
        "the engine's reply is not JSON (nested too deeply)",
    }


async def test_a_refusal_comes_whole():
    desk = Desk(json_reply({"message": "no"}, 400))
    received = await desk.ask()
    assert received.taken is None
    assert (received.engine.status, received.engine.body) == (400, b'{"message": "no"}')


async def test_a_cancelled_turn_leaves_nothing():
    desk = Desk(json_reply(DOCUMENT))
    is_here = asyncio.Event()

    async def turn() -> None:
        async with desk.asking.ask("s", REQUEST, IdsText()):
            is_here.set()
            await asyncio.Event().wait()

    task = asyncio.create_task(turn())
    await is_here.wait()
    assert desk.store.stored_bytes
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
    assert desk.held_bytes == 0
