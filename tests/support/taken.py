"""Replies taken apart as the engine's are, for tests of what is made of them.

Spec: docs/architecture.md#tests
"""

from __future__ import annotations

from sessions.core.engine_replies.taken_reply import TakenReply, read_taken
from sessions.core.texts.shared_text import IdsText
from sessions.replay.blobs import ReplayStore
from sessions.replay.budget import IngestBudget
from sessions.replay.intake import Intake


async def taken_reply_of(store: ReplayStore, raw: bytes, session_id: str = "s") -> TakenReply:
    """Take a reply apart into a store and read it."""
    intake = Intake(store, session_id, IngestBudget(1 << 30))
    if not intake.feed(memoryview(raw)):
        await intake.wait_room()
    try:
        return await read_taken(await intake.finish(), IdsText())
    finally:
        intake.abort()
