"""What a dialect is: the one place that knows how a kind of engine is asked and what it answers.

All dialects are asked over the chat endpoint with the prompt as token ids, unstreamed, and parse
tools and reasoning on the engine's side. They differ in the names of fields, in where the sampled
ids and their log probabilities stand, and in the form of replay data.

Must not know any one engine, nor sessions.

Spec: docs/engines.md#dialects
"""

from __future__ import annotations

from array import array
from dataclasses import dataclass
from typing import Protocol

from sessions.core.engine_replies.sampled import Sampled
from sessions.core.texts.json_text import Json, JsonObject


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplayWish:
    """What a turn asks for of routed experts.

    Attributes:
        is_wanted: Ask for them.
        start_row: Index of the first row that is wanted; 0 for all.
    """

    is_wanted: bool = False
    start_row: int = 0


class EngineDialect(Protocol):
    """One kind of engine; holds no state, so all sessions share it."""

    @property
    def name(self) -> str:
        """As in `SESSIONS_ENGINE_DIALECT`."""
        ...

    def put(self, body: JsonObject, prompt: Json, replay: ReplayWish) -> None:
        """Write into a chat request what token-in-token-out needs.

        Args:
            body: The client's fields in their order, to be changed: ours are set in place or
                appended, what would change the prompt or its echo is taken out.
            prompt: Stands for the ids of the prompt; put where they go, as it is.
            replay: What is asked for of routed experts.
        """
        ...

    def read(self, reply: Json, text: bytes, prompt_ids: array[int]) -> Sampled:
        """Read a 200 reply to such a request.

        Args:
            reply: The parsed body without replay fields, its message is normalised in place;
                `SENT_IDS` stands for the very ids that were sent.
            text: The body or its beginning, for messages.
            prompt_ids: The ids that were sent.

        Returns:
            What was sampled. Null or missing content and tool calls are fine.

        Raises:
            EngineReplyUnusableError: No turn can be made of it; the message says why.
        """
        ...

    def wants_prompt_ids(self, body: JsonObject) -> bool:
        """Whether a client's own request asks for the ids of the prompt."""
        ...
