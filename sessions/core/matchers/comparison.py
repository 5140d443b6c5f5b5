"""JSON values compared: equal type by type, or the first place where they differ.

Must not know what the values mean.

Spec: docs/sessions.md#matcher
"""

from __future__ import annotations

from typing import Final

from sessions.core.matchers.matcher import Difference
from sessions.core.texts.equal_beginning import equal_count_of
from sessions.core.texts.json_text import Json, JsonObject

_SHOWN_CHARACTERS: Final = 60
_SHOWN_BEFORE: Final = 20


def compare(path: str, stored: Json, sent: Json) -> Difference | None:
    """The first place where two values differ, or None.

    Args:
        path: What the values are, such as `tool_calls`.
        stored: What the session holds.
        sent: What the client sent. The order of members does not count; 1, 1.0 and true differ.
    """
    if isinstance(stored, dict) and isinstance(sent, dict):
        return _compare_objects(path, stored, sent)
    if isinstance(stored, list) and isinstance(sent, list):
        return _compare_lists(path, stored, sent)
    is_same = type(stored) is type(sent) and stored == sent
    return None if is_same else differ(path, stored, sent)


def differ(path: str, stored: Json, sent: Json) -> Difference:
    """A difference, its values shortened; two long texts from shortly before they part."""
    start = 0
    if isinstance(stored, str) and isinstance(sent, str):
        start = max(0, equal_count_of(stored, sent) - _SHOWN_BEFORE)
    return Difference(path=path, stored=shown(stored, start), sent=shown(sent, start))


def shown(value: Json, start: int = 0) -> str:
    """A value for a person to read, from an index on if it is a text."""
    if value is None:
        return "nothing"
    text = ascii(value[start : start + _SHOWN_CHARACTERS]) if start else ascii(value)
    if len(text) > _SHOWN_CHARACTERS:
        text = text[: _SHOWN_CHARACTERS - 3] + "..."
    return "..." + text if start else text


def _compare_objects(path: str, stored: JsonObject, sent: JsonObject) -> Difference | None:
    for key in [*stored, *(key for key in sent if key not in stored)]:
        if key not in stored or key not in sent:
            return differ(f"{path}.{key}", stored.get(key), sent.get(key))
        found = compare(f"{path}.{key}", stored[key], sent[key])
        if found is not None:
            return found
    return None


def _compare_lists(path: str, stored: list[Json], sent: list[Json]) -> Difference | None:
    for index, (ours, theirs) in enumerate(zip(stored, sent, strict=False)):
        found = compare(f"{path}[{index}]", ours, theirs)
        if found is not None:
            return found
    if len(stored) == len(sent):
        return None
    return Difference(path=path, stored=f"{len(stored)} entries", sent=f"{len(sent)} entries")
