"""The strict matcher: whether a message that a client sent is the one that the session holds.

Compared are role, content, reasoning_content and tool_calls. None, "" and [] are equal there, the
`index` that streams put into tool calls is ignored, and `reasoning` counts as reasoning_content
when that is missing (engines differ in the name). All other keys of a message are ignored;
everything else is exact, white space and number types too.

Must not know what a session does with a difference.

Spec: docs/sessions.md#matcher
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import takewhile
from typing import Final

from sessions.core.json_text import Json, JsonObject

FIELDS: Final = ("role", "content", "reasoning_content", "tool_calls")
_SHOWN_CHARACTERS: Final = 60
_SHOWN_BEFORE: Final = 20


@dataclass(frozen=True, slots=True, kw_only=True)
class Difference:
    """Where two messages differ.

    Attributes:
        path: From the message on, such as `tool_calls[0].function.arguments`.
        stored: What the session holds, shortened for a person to read.
        sent: What the client sent, likewise.
    """

    path: str
    stored: str
    sent: str


def matched_count_of(stored: Sequence[JsonObject], sent: Sequence[JsonObject]) -> int:
    """How many messages are the same from the start on."""
    count = 0
    for ours, theirs in zip(stored, sent, strict=False):
        if ours is not theirs and difference_of(ours, theirs) is not None:
            break
        count += 1
    return count


def difference_of(stored: JsonObject, sent: JsonObject) -> Difference | None:
    """The first field in which two messages differ, or None when they are the same."""
    for field in FIELDS:
        ours, theirs = stored.get(field), sent.get(field)
        # Nearly all fields of a long history end here.
        if ours and type(ours) is str and ours == theirs:
            continue
        found = _compare(field, _value_of(stored, field), _value_of(sent, field))
        if found is not None:
            return found
    return None


def _value_of(message: JsonObject, field: str) -> Json:
    value = message.get(field)
    if field == "reasoning_content" and not value:
        value = message.get("reasoning")
    if value in ("", []):
        return None
    if field == "tool_calls" and isinstance(value, list):
        return [_without_index(call) for call in value]
    return value


def _without_index(call: Json) -> Json:
    if isinstance(call, dict) and "index" in call:
        return {key: value for key, value in call.items() if key != "index"}
    return call


def _compare(path: str, stored: Json, sent: Json) -> Difference | None:
    if isinstance(stored, dict) and isinstance(sent, dict):
        return _compare_objects(path, stored, sent)
    if isinstance(stored, list) and isinstance(sent, list):
        return _compare_lists(path, stored, sent)
    is_same = type(stored) is type(sent) and stored == sent
    return None if is_same else _differ(path, stored, sent)


def _compare_objects(path: str, stored: JsonObject, sent: JsonObject) -> Difference | None:
    for key in [*stored, *(key for key in sent if key not in stored)]:
        if key not in stored or key not in sent:
            return _differ(f"{path}.{key}", stored.get(key), sent.get(key))
        found = _compare(f"{path}.{key}", stored[key], sent[key])
        if found is not None:
            return found
    return None


def _compare_lists(path: str, stored: list[Json], sent: list[Json]) -> Difference | None:
    for index, (ours, theirs) in enumerate(zip(stored, sent, strict=False)):
        found = _compare(f"{path}[{index}]", ours, theirs)
        if found is not None:
            return found
    if len(stored) == len(sent):
        return None
    return Difference(path=path, stored=f"{len(stored)} entries", sent=f"{len(sent)} entries")


def _differ(path: str, stored: Json, sent: Json) -> Difference:
    start = 0
    if isinstance(stored, str) and isinstance(sent, str):
        # Two long texts are shown from shortly before they part.
        same = takewhile(lambda pair: pair[0] == pair[1], zip(stored, sent, strict=False))
        start = max(0, sum(1 for _ in same) - _SHOWN_BEFORE)
    return Difference(path=path, stored=_shown(stored, start), sent=_shown(sent, start))


def _shown(value: Json, start: int) -> str:
    if value is None:
        return "nothing"
    text = ascii(value[start : start + _SHOWN_CHARACTERS]) if start else ascii(value)
    if len(text) > _SHOWN_CHARACTERS:
        text = text[: _SHOWN_CHARACTERS - 3] + "..."
    return "..." + text if start else text
