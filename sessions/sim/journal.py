"""The last chat requests that the simulated engine saw, for tests that ask what reached it.

Bounded by a count and by bytes. Long id lists are replaced by their length and ends, the rest of a
body is kept as parsed.

Spec: docs/sim.md#journal
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

_BYTES_MAX: Final = 16 << 20  # of bodies in all: a guess at what a test machine can spare
_IDS_SHOWN_MAX: Final = 64
_ENDS: Final = 8


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    """One chat request.

    Attributes:
        number: 1 for the first since the start.
        headers: Names and values as received, names lower-case, order kept.
        query: Raw query string.
        body: The JSON body, long id lists shortened.
        body_bytes: Size of the raw body.
    """

    number: int
    headers: list[tuple[str, str]]
    query: str
    body: dict[str, Any]
    body_bytes: int


class Journal:
    """A bounded record of chat requests."""

    def __init__(self, limit: int) -> None:
        """Keep at most `limit` requests."""
        self._limit = limit
        self._entries: deque[Entry] = deque()
        self._held_bytes = 0
        self.seen_count = 0

    def add(
        self,
        *,
        headers: Sequence[tuple[bytes, bytes]],
        query: bytes,
        body: Mapping[str, Any],
        body_bytes: int,
    ) -> None:
        """Record a request; the oldest go when a limit is passed."""
        self.seen_count += 1
        if not self._limit:
            return
        entry = Entry(
            number=self.seen_count,
            headers=[(name.decode("latin-1"), value.decode("latin-1")) for name, value in headers],
            query=query.decode("latin-1"),
            body={name: _shortened(value) for name, value in body.items()},
            body_bytes=body_bytes,
        )
        self._entries.append(entry)
        self._held_bytes += body_bytes
        while len(self._entries) > self._limit or (
            self._held_bytes > _BYTES_MAX and len(self._entries) > 1
        ):
            self._held_bytes -= self._entries.popleft().body_bytes

    def clear(self) -> None:
        """Forget all requests and start counting anew."""
        self._entries.clear()
        self._held_bytes = 0
        self.seen_count = 0

    @property
    def entries(self) -> list[Entry]:
        """The requests kept, oldest first."""
        return list(self._entries)


def _shortened(value: object) -> object:
    if not isinstance(value, list) or len(value) <= _IDS_SHOWN_MAX:
        return value
    if not all(type(each) is int for each in value[:_ENDS]):
        return value
    return {"count": len(value), "first": value[:_ENDS], "last": value[-_ENDS:]}
