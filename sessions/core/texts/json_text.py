r"""JSON in and out: strict where a client speaks, tolerant where an engine does.

orjson does the work. What it refuses is read again by the standard library: a lone surrogate
(`"\ud800"`) is kept as such, and the `NaN`, `Infinity` and out-of-range numbers that engines print
for log probabilities become null. Writing escapes lone surrogates again, so whatever was read can
be written.

Must not know what the values mean.

Spec: docs/sessions.md#json
"""

from __future__ import annotations

import json
import math
from typing import Any, TypeAlias

import orjson

Json: TypeAlias = Any
JsonObject: TypeAlias = dict[str, Any]


def parse_client_json(body: bytes) -> Json:
    r"""Parse a request body.

    Args:
        body: UTF-8 text without a byte order mark.

    Returns:
        The value; the last of two equal keys wins. Lone surrogates are kept.

    Raises:
        ValueError: Not UTF-8, not JSON (`NaN` and `Infinity` are not), a number that is too large
            for a double, or nested too deeply. The message says where or what.
    """
    try:
        return orjson.loads(body)
    except orjson.JSONDecodeError as refusal:
        try:
            return json.loads(
                body.decode(), parse_constant=_refuse_constant, parse_float=_finite_or_refuse
            )
        except RecursionError:
            raise ValueError("nested too deeply") from refusal


def parse_engine_json(body: bytes) -> tuple[Json, bool]:
    """Parse a reply of the engine.

    Args:
        body: UTF-8 text.

    Returns:
        (value, strict). `strict` is False when only the tolerant reading worked: the bytes are
        then no JSON for a strict reader, or hold a lone surrogate; numbers that are not finite are
        None in the value.

    Raises:
        ValueError: Not UTF-8, not JSON, or nested too deeply.
    """
    try:
        return orjson.loads(body), True
    except orjson.JSONDecodeError as refusal:
        try:
            return (
                json.loads(body.decode(), parse_constant=_none_of, parse_float=_finite_or_none),
                False,
            )
        except RecursionError:
            raise ValueError("nested too deeply") from refusal


def render_json(value: Json) -> bytes:
    """Write compact UTF-8 JSON.

    Args:
        value: As read by the functions above.

    Returns:
        JSON that any strict reader takes: non-ASCII text unescaped, unless a lone surrogate
        forces escapes; numbers that are not finite as null.
    """
    try:
        return orjson.dumps(value)
    except TypeError:
        return render_ascii_json(value).encode()


def render_ascii_json(value: Json) -> str:
    """Write compact JSON with everything but ASCII escaped.

    Server-sent events need it: U+2028, U+0085 and others end a line for some clients' readers.

    Args:
        value: As read by the functions above.

    Returns:
        ASCII text without line breaks.
    """
    return json.dumps(value, separators=(",", ":"), allow_nan=False)


def _refuse_constant(name: str) -> None:
    raise ValueError(f"{name} is not JSON")


def _finite_or_refuse(text: str) -> float:
    """It would be written as null: another value than the client meant, and nobody would see it."""
    value = float(text)
    if not math.isfinite(value):
        raise ValueError(f"{text[:40]} is too large a number")
    return value


def _none_of(_name: str) -> None:
    return None


def _finite_or_none(text: str) -> float | None:
    value = float(text)
    return value if math.isfinite(value) else None
