"""An engine's replies to turns, with rows of experts that fit, and ways to ask for them to fail.

Row i of every reply is the same unless a reply is told otherwise, as it is with a real engine. A
chat's field `"fault": n` reaches the engine with its body, so a test chooses by request what the
scripted engine does.

Spec: docs/architecture.md#tests
"""

from __future__ import annotations

import base64
import json
import re
from collections.abc import Callable
from typing import Any, Final

from sessions.tokens.prompts import PromptBuilder
from tests.support.engines import sampled_document
from tests.support.raw_engine import Answer, Asked
from tests.support.raw_replies import length_reply
from tests.support.samples import rows_for

# Where the rows of a turn and those of a fault part: within the second turn.
_PART: Final = 20
_FAULT: Final = re.compile(rb'"fault":(\d+)')


def fault_in(asked: Asked) -> int | None:
    """The number of the fault that a chat asks for."""
    found = _FAULT.search(asked.body)
    return int(found[1]) if found else None


class Sampler:
    """Makes replies that say one text.

    Attributes:
        token_ids: What each reply samples.
    """

    def __init__(
        self, prompts: PromptBuilder, text: str = "ok", *, layers: int = 1, topk: int = 8
    ) -> None:
        self._text = text
        self._layers = layers
        self._topk = topk
        self.token_ids = prompts.tokenizer.encode(f"<think>\n\n</think>\n\n{text}<|im_end|>")

    def rows_due(self, asked: Asked) -> int:
        """How many rows a reply has: one per token but the last."""
        return len(json.loads(asked.body)["input_ids"]) + len(self.token_ids) - 1

    def experts_of(self, rows: int, *, is_other: bool = False) -> str:
        """Base64 text of int32 rows; other ones differ from the 20th row on."""
        found = rows_for(rows, self._layers, self._topk)
        if is_other:
            found[_PART:] += 1 << 20
        return base64.b64encode(found.tobytes()).decode()

    def experts(self, asked: Asked, *, is_other: bool = False) -> str:
        """The rows of a reply."""
        return self.experts_of(self.rows_due(asked), is_other=is_other)

    def document(self, asked: Asked, *, is_other: bool = False) -> dict[str, Any]:
        """A reply with its rows, to change or to send."""
        document = sampled_document(self.token_ids, content=self._text)
        experts = self.experts(asked, is_other=is_other)
        document["choices"][0]["meta_info"]["routed_experts"] = experts
        return document

    def body(self, asked: Asked, *, is_other: bool = False) -> bytes:
        """The same as JSON."""
        return json.dumps(self.document(asked, is_other=is_other)).encode()


def answers_with_faults(
    sampler: Sampler, fault_of: Callable[[int, Asked], Answer]
) -> Callable[[Asked], Answer]:
    """Good replies, except to chats that ask for a fault."""

    def answer_of(asked: Asked) -> Answer:
        number = fault_in(asked)
        if number is None:
            return Answer(length_reply(sampler.body(asked)))
        return fault_of(number, asked)

    return answer_of
