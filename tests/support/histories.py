"""Histories without engines: messages, and turns that are taken by hand.

Spec: docs/architecture.md#tests
"""

from __future__ import annotations

from array import array
from collections.abc import Iterable, Sequence
from typing import Any, TypeAlias

from sessions.core.engine_replies.turn_facts import TurnFacts
from sessions.core.histories.checkpoint import Checkpoint, Plan
from sessions.core.histories.history import History
from sessions.core.records.record import Record
from sessions.core.texts.shared_ids import SharedIds
from sessions.replay.splice import SplicedText

Message: TypeAlias = dict[str, Any]


def user(text: str) -> Message:
    """What a user says."""
    return {"role": "user", "content": text}


def reply(text: str) -> Message:
    """What was sampled."""
    return {"role": "assistant", "content": text}


def checkpoint_of(plan: Plan, name: str, finish_reason: str = "stop") -> Checkpoint:
    """The checkpoint of a turn with that plan; its record's response is the name."""
    text = SplicedText(parts=(name.encode(),))
    return Checkpoint(
        ids=SharedIds(array("I", [len(name)])),
        message_end=len(plan.stored) + len(plan.tail) + 1,
        record=Record(facts={}, request=(), response=text, raw_response=text, status=200),
        facts=TurnFacts(prompt_count=0, log_probs=array("d"), finish_reason=finish_reason),
        tools=None,
        template_kwargs={},
    )


def apply(history: History, plan: Plan, text: str, finish_reason: str = "stop") -> list[Checkpoint]:
    """Commit a turn that sampled a text; the checkpoints that were dropped."""
    return history.commit(plan, reply(text), checkpoint_of(plan, text, finish_reason))


def turn(history: History, sent: Sequence[Message], text: str) -> list[str]:
    """Take a turn; the names of the records that were dropped."""
    dropped = apply(history, history.plan(sent), text)
    return names_of(checkpoint.record for checkpoint in dropped)


def names_of(records: Iterable[Record]) -> list[str]:
    """What was sampled in the turns of these records."""
    return [b"".join(map(bytes, record.response.parts)).decode() for record in records]  # type: ignore[arg-type]
