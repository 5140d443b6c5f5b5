"""What a session keeps of one sampled turn, and how a request attaches to such turns.

Only sampled replies make checkpoints; assistant messages that the client brings along are text.

Must not know how checkpoints are ordered.

Spec: docs/sessions.md#trajectory
"""

from __future__ import annotations

from array import array
from collections.abc import Sequence
from dataclasses import dataclass, field

from sessions.core.engine_replies.turn_facts import TurnFacts
from sessions.core.records.record import Record
from sessions.core.texts.json_text import JsonObject
from sessions.core.texts.shared_ids import SharedIds
from sessions.core.texts.shared_text import IdsText


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Checkpoint:
    """The token state after one sampled reply; compared by identity.

    Attributes:
        ids: Prompt and completion, shared with the checkpoints before.
        message_end: How many messages of the history they cover.
        record: The turn's record.
        facts: What training samples need besides.
        tools: The tools that the turn was rendered with.
        template_kwargs: The kwargs that it was rendered with.
        response_id: What the engine calls its reply; "" if it did not say.
        ids_text: The tokens as JSON text, for turns that build on it.
        messages_text: The messages that the engine got, likewise (`EngineBody.messages`).
    """

    ids: SharedIds
    message_end: int
    record: Record
    facts: TurnFacts
    tools: list[JsonObject] | None
    template_kwargs: JsonObject
    response_id: str = ""
    ids_text: IdsText = field(default_factory=IdsText)
    messages_text: tuple[bytes, ...] = ()

    @property
    def token_ids(self) -> array[int]:
        """Prompt and completion; not to be changed."""
        return self.ids.whole()


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Plan:
    """How a request attaches.

    Attributes:
        head: The newest checkpoint at planning, None in an empty session.
        base: The checkpoint that the prompt builds on, None to render from the start.
        stored: The messages that the base covers, in the session's spelling.
        tail: The messages that the request adds to them; may be empty.
    """

    head: Checkpoint | None
    base: Checkpoint | None
    stored: Sequence[JsonObject]
    tail: Sequence[JsonObject]
