"""What the engine sampled: its 200 reply in our own words, whatever kind of engine sent it.

A dialect (`core/dialects`) makes it after every check: a turn is recorded only when the reply says
which tokens were sampled and every count agrees.

Must not know engines, sessions or HTTP.

Spec: docs/sessions.md#engine-reply
"""

from __future__ import annotations

from array import array
from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Final

from sessions.core.engine_replies.replay_fields import blank_replay
from sessions.core.texts.json_text import JsonObject

_SHOWN_CHARACTERS: Final = 300
_NO_LAYERS: Final[Mapping[str, int]] = MappingProxyType({})


@dataclass(frozen=True, slots=True, kw_only=True)
class Sampled:
    """One usable reply.

    Attributes:
        reply: The whole reply as parsed, numbers that are not finite as None, `SENT_IDS` for the
            ids of the prompt; what the client gets is made of it.
        message: The assistant message, shared with the reply; its reasoning, if there is any,
            stands in `reasoning_content` whatever name the engine gave it.
        token_ids: The sampled ids, the stop token included.
        log_probs: One per sampled token, doubles; NaN where the engine gave no finite number.
        finish_reason: The engine's word, "" if there was none.
        weight_version: Of the model, "" if the engine did not say.
        cached_count: Prompt tokens that the engine had cached.
        prompt_count: Prompt tokens as the engine counts them, 0 if it does not.
        latency_s: Seconds that the engine took, None if it did not say.
        row_layers: Layers of a bare row of replay data, by field, where the engine told them.
    """

    reply: JsonObject
    message: JsonObject
    token_ids: array[int]
    log_probs: array[float]
    finish_reason: str = ""
    weight_version: str = ""
    cached_count: int = 0
    prompt_count: int = 0
    latency_s: float | None = None
    row_layers: Mapping[str, int] = field(default_factory=lambda: _NO_LAYERS)


def shown_text(text: bytes) -> str:
    """The beginning of a body for a message, without replay."""
    shown = blank_replay(text[: 4 * _SHOWN_CHARACTERS]).decode(errors="replace")
    return shown if len(shown) <= _SHOWN_CHARACTERS else shown[:_SHOWN_CHARACTERS] + "..."
