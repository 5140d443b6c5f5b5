"""What of a session a client wants to read: the query of `GET /sessions/{id}`.

`turns` chooses records, `fields` chooses members of the reply and of its records, `replay` and
`raw` say how the engine's replies are shown. What is not asked for is not read either, so a small
question about a large session is cheap.

Must not know how records are kept.

Spec: docs/sessions.md#choosing-records
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, TypeVar
from urllib.parse import parse_qsl

from sessions.errors.client_visible import RequestError

RECORD_MEMBERS: Final = (
    "timestamp",
    "request_timestamp",
    "method",
    "path",
    "finish_reason",
    "partial",
    "weight_version",
    "node",
    "replay_error",
    "request",
    "response",
    "status_code",
)
_RECORDS: Final = "records"
_METADATA: Final = "metadata"
_FIELDS: Final = (_RECORDS, _METADATA, *RECORD_MEMBERS)
# Python reads no number of more than 4300 digits, and no session has so many turns.
_TURNS: Final = re.compile(r"([0-9]{1,18})?(?:(-)([0-9]{1,18})?)?")

_T = TypeVar("_T")


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordQuery:
    """What a client wants.

    Attributes:
        start: Index of the first record, from 0; negative counts from the end.
        stop: Index behind the last one; None for all that follow.
        members: Names of the record members; None for all of them, even unknown ones.
        has_records: Whether `records` is there.
        has_metadata: Whether `metadata` is there.
        has_replay: Whether replay blobs are there; else null stands for them.
        is_raw: Whether replies that are no strict JSON come as the engine wrote them.
    """

    start: int = 0
    stop: int | None = None
    members: frozenset[str] | None = None
    has_records: bool = True
    has_metadata: bool = True
    has_replay: bool = True
    is_raw: bool = False

    def chosen(self, records: Sequence[_T]) -> Sequence[_T]:
        """The records that are wanted; those that do not exist are left out."""
        return records[self.start : self.stop] if self.has_records else ()

    def wants(self, member: str) -> bool:
        """Whether a member of the records is wanted."""
        return self.members is None or member in self.members


def parse_record_query(query: bytes) -> RecordQuery:
    """Parse the raw query of a read; parameters of other names are ignored.

    Args:
        query: Without "?", percent-encoded.

    Raises:
        RequestError: A parameter is malformed or stands twice; `param` names it.
    """
    given: dict[str, str] = {}
    for name, value in parse_qsl(query.decode("latin-1"), keep_blank_values=True):
        if name in ("turns", "fields", "replay", "raw"):
            if name in given:
                raise RequestError(f"{name} is given twice", param=name)
            given[name] = value
    start, stop = _parse_turns(given["turns"]) if "turns" in given else (0, None)
    fields = _parse_fields(given["fields"]) if "fields" in given else frozenset(_FIELDS)
    has_all = _RECORDS in fields
    return RecordQuery(
        start=start,
        stop=stop,
        members=None if has_all else fields & frozenset(RECORD_MEMBERS),
        has_records=has_all or not fields <= {_METADATA},
        has_metadata=_METADATA in fields,
        has_replay=_parse_flag("replay", given.get("replay", "1")),
        is_raw=_parse_flag("raw", given.get("raw", "0")),
    )


def _parse_turns(text: str) -> tuple[int, int | None]:
    found = _TURNS.fullmatch(text)
    first, dash, last = found.groups("") if found else ("", "", "")
    if not (first or last):
        raise RequestError(
            f"turns={text[:40]!r} is refused: expected 3, 2-5, 2- or -2, counted from 0",
            param="turns",
        )
    if not first:
        count = int(last)
        return (-count, None) if count else (0, 0)
    start = int(first)
    if not dash:
        return start, start + 1
    if not last:
        return start, None
    if int(last) < start:
        raise RequestError(f"turns={text!r} is refused: it ends before it starts", param="turns")
    return start, int(last) + 1


def _parse_fields(text: str) -> frozenset[str]:
    names = frozenset(text.split(","))
    unknown = sorted(names - frozenset(_FIELDS))
    if unknown:
        raise RequestError(
            f"fields names {unknown[0][:40]!r}: expected names of {', '.join(_FIELDS)}",
            param="fields",
        )
    return names


def _parse_flag(name: str, text: str) -> bool:
    if text not in ("0", "1"):
        raise RequestError(f"{name}={text[:40]!r} is refused: expected 0 or 1", param=name)
    return text == "1"
