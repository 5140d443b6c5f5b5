"""Turns that were not run: checkpoints, and what their clients get.

Spec: docs/architecture.md#tests
"""

from __future__ import annotations

from array import array

from sessions.core.attempts.turn_reply import TurnReply
from sessions.core.engine_replies.turn_facts import TurnFacts
from sessions.core.histories.checkpoint import Checkpoint
from sessions.core.records.record import Record
from sessions.core.texts.shared_ids import SharedIds
from sessions.engine.engine import EngineReply
from sessions.replay.splice import SplicedText
from tests.support.engines import json_reply


def checkpoint(token_count: int = 0) -> Checkpoint:
    """A checkpoint of so many tokens."""
    text = SplicedText(parts=())
    return Checkpoint(
        ids=SharedIds(array("I", range(token_count))),
        message_end=1,
        record=Record(facts={}, request=(), response=text, raw_response=text, status=200),
        facts=TurnFacts(prompt_count=0, log_probs=array("d")),
        tools=None,
        template_kwargs={},
    )


def turn_reply(
    body: bytes | None = b"x", *, is_recorded: bool = True, engine: EngineReply | None = None
) -> TurnReply:
    """What a client gets of a turn that was recorded, or was not."""
    return TurnReply(
        engine=engine or json_reply({}), body=body, turn=checkpoint() if is_recorded else None
    )
