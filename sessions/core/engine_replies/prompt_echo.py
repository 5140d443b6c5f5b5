"""The prompt's ids in an engine's reply: as long as the history, and known already.

We ask for them, to see that the engine used our prompt. Where they stand in the reply as the very
text that was sent, that text is compared and cut out; a mark that nobody could have guessed stands
there for the parser, and the record has the pieces of the request in its place. Ids in any other
spelling stay in the text and are parsed.

Replacing one JSON value by another changes nothing else of what a text says. That what was cut is
a value, and the one of the right member, is known when the mark is found there.

Must not know what a turn is.

Spec: docs/sessions.md#prompt-echo
"""

from __future__ import annotations

import secrets
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final, TypeVar

from sessions.core.texts.json_text import Json, JsonObject
from sessions.core.texts.shared_text import PIECE_BYTES, IdsText

PROMPT_IDS: Final = "prompt_token_ids"
_KEY: Final = f'"{PROMPT_IDS}":'.encode()
_MARK_BYTES: Final = 16

_Part = TypeVar("_Part")


class SentIds:
    """Stands in a parsed reply for ids that are those that were sent."""


SENT_IDS: Final = SentIds()


@dataclass(frozen=True, slots=True, kw_only=True)
class CutText:
    """A reply without the prompt's ids.

    Attributes:
        text: The text, a mark in the place of each copy of the ids.
        mark: A JSON string, quotes included.
        count: How often it stands there.
        prompt: The ids.
    """

    text: bytes
    mark: bytes
    count: int
    prompt: IdsText

    def filled(self, parts: Iterable[bytes | _Part]) -> tuple[bytes | _Part, ...]:
        """Put the ids back.

        Args:
            parts: Of this text, or of one written anew from what it says.

        Returns:
            The parts with the ids in the places of the marks, shared; none empty.
        """
        filled: list[bytes | _Part] = []
        for part in parts:
            if not isinstance(part, bytes):
                filled.append(part)
                continue
            for index, text in enumerate(part.split(self.mark)):
                if index:
                    filled += self.prompt.json_parts
                if text:
                    filled.append(text)
        return tuple(filled)

    def replace_marks(self, reply: Json) -> bool:
        """Put `SENT_IDS` where marks are; whether each was where ids belong.

        Args:
            reply: What the text says; changed in place.
        """
        mark = self.mark[1:-1].decode()
        found = 0
        for holder in holders_of(reply):
            if holder.get(PROMPT_IDS) == mark:
                holder[PROMPT_IDS] = SENT_IDS
                found += 1
        return found == self.count


def cut_echo(text: bytes, prompt: IdsText) -> CutText:
    """Cut the prompt's ids out of a reply.

    Args:
        text: JSON.
        prompt: The ids that were sent. Few of them are not worth it and stay.
    """
    mark = b'"prompt-%s"' % secrets.token_hex(_MARK_BYTES).encode()
    echo = b"".join(prompt.json_parts)
    pieces: list[bytes] = []
    done = 0
    at = text.find(_KEY) if len(echo) >= PIECE_BYTES else -1
    while at >= 0:
        start = at + len(_KEY)
        if text.startswith(echo, start):
            pieces.append(text[done:start])
            done = start = start + len(echo)
        at = text.find(_KEY, start)
    cut = mark.join([*pieces, text[done:]])
    return CutText(text=cut, mark=mark, count=len(pieces), prompt=prompt)


def holders_of(reply: Json) -> list[JsonObject]:
    """The objects of a reply in which the prompt's ids may stand: itself and its choices."""
    choices = reply.get("choices") if isinstance(reply, dict) else None
    holders = [reply, *choices] if isinstance(choices, list) else [reply]
    return [holder for holder in holders if isinstance(holder, dict)]
