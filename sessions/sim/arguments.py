"""Plausible arguments for a tool, made from the JSON schema of its parameters.

The schema is the client's and may be anything: what is not understood becomes a short text. Words
and numbers of the user's message are used where they fit, so a demo reads like a conversation.

Must not know engines or replies.

Spec: docs/sim.md#tool-calls
"""

from __future__ import annotations

import random
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

_DEPTH_MAX: Final = 8
_NAMES: Final = re.compile(r"(?<=[a-z,:;] )[A-Z][\w'-]+")
_NUMBERS: Final = re.compile(r"(?<![\w.])\d{1,9}(?![\w.])")

# First match on the property's name wins.
_TEXTS_BY_NAME: Final[Sequence[tuple[str, Sequence[str]]]] = (
    ("city|location|place|town", ("Oslo", "Lima", "Nairobi", "Kyoto", "Graz")),
    ("country", ("Norway", "Peru", "Kenya", "Japan")),
    ("mail", ("ada@example.com", "lin@example.com")),
    ("url|link", ("https://example.com/a", "https://example.com/b")),
    ("file|path", ("notes.txt", "src/main.py")),
    ("date|day", ("2026-03-14", "2026-09-01")),
    ("currency", ("EUR", "NOK")),
    ("language|lang", ("en", "de")),
    ("unit", ("celsius", "metric")),
    ("command|cmd", ("ls", "pwd")),
    ("expression|formula", ("2 + 3 * 4", "17 / 3")),
    ("query|question|search|text|prompt", ("recent changes", "how tides work", "open tasks")),
    ("name|user|author", ("Ada", "Lin", "Omar")),
)
_TEXTS_BY_FORMAT: Final[Mapping[str, Sequence[str]]] = {
    "date": ("2026-03-14", "2026-09-01"),
    "date-time": ("2026-03-14T09:00:00Z", "2026-09-01T17:30:00Z"),
    "time": ("09:00:00", "17:30:00"),
    "email": ("ada@example.com", "lin@example.com"),
    "uri": ("https://example.com/a", "https://example.com/b"),
    "uuid": ("7d0f6a1e-54a5-4a4e-9b8a-0c9e2f1d3b57",),
}
_OTHER_TEXTS: Final = ("alpha", "blue", "north", "seven")


@dataclass(frozen=True, slots=True, kw_only=True)
class _Source:
    rng: random.Random
    root: Mapping[str, Any]
    hint: str


def arguments_for(schema: object, hint: str, rng: random.Random) -> dict[str, Any]:
    """Make arguments.

    Args:
        schema: JSON schema of a tool's parameters; anything else counts as no parameters.
        hint: The user's message.
        rng: Chooses among what fits.

    Returns:
        An object with all required properties, and some of the others.
    """
    if not isinstance(schema, Mapping):
        return {}
    source = _Source(rng=rng, root=schema, hint=hint)
    return _object(source, schema, 0)


def _object(source: _Source, schema: Mapping[str, Any], depth: int) -> dict[str, Any]:
    properties = schema.get("properties")
    if not isinstance(properties, Mapping):
        return {}
    required = schema.get("required")
    wanted = set(required) if isinstance(required, list) else set(properties)
    return {
        name: _value(source, name, each, depth + 1)
        for name, each in properties.items()
        if name in wanted or source.rng.random() < 0.3  # noqa: PLR2004 - some of the optional ones
    }


def _value(source: _Source, name: str, schema: object, depth: int) -> object:
    found = _resolved(source, schema, depth)
    for key in ("const", "default"):
        if key in found:
            return found[key]
    for key in ("enum", "examples"):
        if isinstance(found.get(key), list) and found[key]:
            chosen: object = source.rng.choice(found[key])
            return chosen
    return _typed_value(source, name, found, depth)


def _typed_value(source: _Source, name: str, schema: Mapping[str, Any], depth: int) -> object:
    kind = schema.get("type")
    if isinstance(kind, list):
        kind = next((each for each in kind if each != "null"), "null")
    if kind == "object" or (kind is None and "properties" in schema):
        return _object(source, schema, depth) if depth < _DEPTH_MAX else {}
    if kind == "array":
        return _array(source, name, schema, depth)
    if kind in {"integer", "number"}:
        return _number(source, schema, whole=kind == "integer")
    if kind == "boolean":
        return source.rng.random() < 0.5  # noqa: PLR2004 - a coin
    return None if kind == "null" else _text(source, name, schema)


def _resolved(source: _Source, schema: object, depth: int) -> Mapping[str, Any]:
    """The schema behind a local reference or the first useful alternative."""
    if not isinstance(schema, Mapping) or depth >= _DEPTH_MAX:
        return {}
    reference = schema.get("$ref")
    if isinstance(reference, str) and reference.startswith("#/"):
        target: Any = source.root
        for part in reference[2:].split("/"):
            target = target.get(part) if isinstance(target, Mapping) else None
        return _resolved(source, target, depth + 1)
    for key in ("anyOf", "oneOf", "allOf"):
        alternatives = schema.get(key)
        if isinstance(alternatives, list) and alternatives:
            useful = (
                each
                for each in alternatives
                if not (isinstance(each, Mapping) and each.get("type") == "null")
            )
            return _resolved(source, next(useful, None), depth + 1)
    return schema


def _array(source: _Source, name: str, schema: Mapping[str, Any], depth: int) -> list[Any]:
    low = schema.get("minItems")
    count = max(1, low) if isinstance(low, int) else source.rng.randint(1, 2)
    if depth >= _DEPTH_MAX:
        return []
    return [_value(source, name, schema.get("items"), depth + 1) for _ in range(min(count, 8))]


def _number(source: _Source, schema: Mapping[str, Any], *, whole: bool) -> int | float:
    low, high = schema.get("minimum"), schema.get("maximum")
    bottom = low if isinstance(low, (int, float)) else 0
    top = high if isinstance(high, (int, float)) else bottom + 20
    said = [int(text) for text in _NUMBERS.findall(source.hint)]
    fitting = [number for number in said if bottom <= number <= top]
    if fitting:
        return source.rng.choice(fitting)
    if whole:
        return source.rng.randint(int(bottom), max(int(bottom), int(top)))
    return round(source.rng.uniform(bottom, max(bottom, top)), 1)


def _text(source: _Source, name: str, schema: Mapping[str, Any]) -> str:
    texts = _TEXTS_BY_FORMAT.get(str(schema.get("format")))
    if texts is not None:
        return source.rng.choice(texts)
    said: list[str] = _NAMES.findall(source.hint)
    for pattern, candidates in _TEXTS_BY_NAME:
        if re.search(pattern, name, re.IGNORECASE):
            return source.rng.choice(said or candidates)
    return source.rng.choice(said or _OTHER_TEXTS)
