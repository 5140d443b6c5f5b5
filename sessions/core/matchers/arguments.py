"""The arguments of a tool call by what they say, whatever text says it.

Agents parse the arguments that a model wrote and write them again: keys in another order, other
spaces, numbers in another form, or the object itself in place of its text. Two arguments say the
same if they are objects with equal members; numbers are equal as decimals, exactly, and true is no
number. Nothing, "" and {} are equal.

What cannot be told so has no canonical form and is only equal to the very same value: a text that
is no JSON object, one of two equal keys, `NaN`, `Infinity`.

Clients of some forms never see that text: they get the object, and send it back. Their arguments
are `Reworded`, and compared as JSON parsers read them: numbers as doubles, the last of equal keys.

Spec: docs/sessions.md#matcher
"""

from __future__ import annotations

import json
import math
from decimal import Decimal, InvalidOperation
from typing import Final, NoReturn, TypeAlias

from sessions.core.texts.json_text import Json, parse_client_json

# Stands for arguments that are equal.
SAME: Final = "(the same)"

_Canonical: TypeAlias = tuple[object, ...]


class Reworded(str):
    """The text of arguments that a client sent as an object: the client does not know it."""

    __slots__ = ()


def canonical_of(arguments: Json) -> _Canonical | None:
    """A value that is equal for arguments that say the same; None if they have no such form.

    Args:
        arguments: As in a message: a text, an object, or nothing.
    """
    try:
        if isinstance(arguments, str) and arguments:
            found = _parse(arguments)
        else:
            found = {} if arguments is None or arguments == "" else arguments
        return _form_of(found) if isinstance(found, dict) else None
    except (ValueError, InvalidOperation, RecursionError):
        return None


def doubled_of(arguments: Json) -> _Canonical | None:
    """A value that is equal for arguments that a client's JSON parser reads alike.

    Numbers are doubles; of two equal keys the last one counts.

    Args:
        arguments: As in a message: a text, an object, or nothing.

    Returns:
        The value; None if they are no object, or have a number that no double holds.
    """
    try:
        if isinstance(arguments, str) and arguments:
            found = parse_client_json(arguments.encode())
        else:
            found = {} if arguments is None or arguments == "" else arguments
        return _doubled(found) if isinstance(found, dict) else None
    except (ValueError, OverflowError, RecursionError):
        return None


def _doubled(value: Json) -> _Canonical:
    if isinstance(value, dict):
        return ("object", tuple((key, _doubled(value[key])) for key in sorted(value)))
    if isinstance(value, list):
        return ("array", tuple(map(_doubled, value)))
    if isinstance(value, bool) or value is None:
        return ("constant", value)
    if isinstance(value, str):
        return ("text", value)
    double = float(value)
    if not math.isfinite(double):
        _refuse("too large for a double")
    return ("number", double)


def _parse(text: str) -> Json:
    return json.loads(text, parse_int=Decimal, parse_float=Decimal, object_pairs_hook=_object_of)


def _form_of(value: Json) -> _Canonical:
    """A value with its kind, so that 1 and true differ; members in order of their keys."""
    if isinstance(value, dict):
        return ("object", tuple((key, _form_of(value[key])) for key in sorted(value)))
    if isinstance(value, list):
        return ("array", tuple(map(_form_of, value)))
    if isinstance(value, bool) or value is None:
        return ("constant", value)
    if isinstance(value, str):
        return ("text", value)
    if isinstance(value, float) and not math.isfinite(value):
        _refuse("not a finite number")
    # A float's shortest text is the decimal that its sender wrote.
    return ("number", Decimal(repr(value)) if isinstance(value, float) else Decimal(value))


def _object_of(pairs: list[tuple[str, Json]]) -> dict[str, Json]:
    found = dict(pairs)
    if len(found) < len(pairs):
        _refuse("a key stands twice")
    return found


def _refuse(what: str) -> NoReturn:
    raise ValueError(what)
