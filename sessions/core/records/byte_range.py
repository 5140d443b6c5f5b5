"""Byte ranges and entity tags of a reply: which bytes of it a request wants, if any.

RFC 9110: one range of bytes is served (section 14.2), several are answered with the whole, which
a server may; a header that means nothing is ignored. `If-Match`, `If-None-Match` and `If-Range`
compare with the reply's one strong tag, in the order of section 13.2.2.

Must not know what the bytes are.

Spec: docs/sessions.md#ranges
"""

from __future__ import annotations

import enum
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from sessions.errors.protocol import PreconditionFailedError, RangeNotSatisfiableError

_RANGE: Final = re.compile(rb"([0-9]*)[ \t]*-[ \t]*([0-9]*)")
_UNIT: Final = b"bytes="
_TAGS: Final = re.compile(rb'(?:W/)?"[^"]*"')
# More digits than any size has; Python reads no number of more than 4300.
_DIGITS: Final = 18
_HUGE: Final = 10**_DIGITS
_QUOTED_BYTES: Final = 80

HeaderSequence = Sequence[tuple[bytes, bytes]]


class Answer(enum.Enum):
    """What a conditional request gets."""

    UNCHANGED = enum.auto()
    WHOLE = enum.auto()
    PART = enum.auto()


@dataclass(frozen=True, slots=True, kw_only=True)
class Selection:
    """Which bytes are sent.

    Attributes:
        answer: Why.
        start: Of the first byte.
        stop: Behind the last one.
    """

    answer: Answer
    start: int
    stop: int


def select(headers: HeaderSequence, *, etag: bytes, size_bytes: int, is_head: bool) -> Selection:
    """Decide what a request gets of a reply.

    Args:
        headers: The request's, names lower-case.
        etag: The reply's strong tag, with its quotes.
        size_bytes: Of the whole reply, at least 1.
        is_head: HEAD has no ranges.

    Raises:
        PreconditionFailedError: `If-Match` names other tags.
        RangeNotSatisfiableError: The one range that is asked for has no byte.
    """
    wanted = _joined(headers, b"if-match")
    if wanted is not None and not _names(wanted, etag, is_weak=False):
        raise PreconditionFailedError("the records are not those that if-match names")
    known = _joined(headers, b"if-none-match")
    if known is not None and _names(known, etag, is_weak=True):
        return Selection(answer=Answer.UNCHANGED, start=0, stop=0)
    whole = Selection(answer=Answer.WHOLE, start=0, stop=size_bytes)
    asked = _joined(headers, b"range")
    if_range = _joined(headers, b"if-range")
    if is_head or asked is None or if_range not in (None, etag):
        return whole
    found = parse_range(asked, size_bytes)
    return whole if found is None else Selection(answer=Answer.PART, start=found[0], stop=found[1])


def parse_range(text: bytes, size_bytes: int) -> tuple[int, int] | None:
    """Parse a `Range` header.

    Args:
        text: Its value; several header lines joined by commas.
        size_bytes: Of the whole, at least 1.

    Returns:
        (start, stop) of one range, half-open, within the size; None to send the whole: another
        unit, several ranges, or nothing that is a range.

    Raises:
        RangeNotSatisfiableError: The one range has no byte.
    """
    if text[: len(_UNIT)].lower() != _UNIT:
        return None
    ranges = [piece for each in text[len(_UNIT) :].split(b",") if (piece := each.strip(b" \t"))]
    found = _RANGE.fullmatch(ranges[0]) if len(ranges) == 1 else None
    if found is None or not (found[1] or found[2]):
        return None
    if not found[1]:
        start, stop = max(0, size_bytes - _number(found[2])), size_bytes
    else:
        start, stop = _number(found[1]), size_bytes
        if found[2]:
            last = _number(found[2])
            if last < start:
                return None
            stop = min(last + 1, size_bytes)
    if start >= size_bytes:
        asked = text[:_QUOTED_BYTES].decode("latin-1")
        error = RangeNotSatisfiableError(f"{asked!r} has none of the {size_bytes} bytes there are")
        error.more_headers.append(("content-range", f"bytes */{size_bytes}"))
        raise error
    return start, stop


def _number(digits: bytes) -> int:
    digits = digits.lstrip(b"0")
    return int(digits or b"0") if len(digits) <= _DIGITS else _HUGE


def _joined(headers: HeaderSequence, name: bytes) -> bytes | None:
    values = [value for key, value in headers if key == name]
    return b", ".join(values) if values else None


def _names(text: bytes, etag: bytes, *, is_weak: bool) -> bool:
    """Whether a list of tags names one; weak comparison ignores `W/` (section 8.8.3.2)."""
    if text.strip() == b"*":
        return True
    tags = _TAGS.findall(text)
    return etag in tags or (is_weak and b"W/" + etag in tags)
