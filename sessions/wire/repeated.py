"""Heads whose header lines were judged before: the same verdict as the gate's, at half its cost.

An agent sends the same header lines with every request; only the request line and the number in
`Content-Length` differ. `RepeatedHeads` keeps the lines of heads that the gate took, that number
cut out. A head with a request line of the plainest form and lines that are kept byte for byte needs
no parser: no rule of the gate looks at request line and header lines together, `CONNECT`, HTTP/1.0
and `Upgrade` aside, which are never kept. Whatever is not so plain goes to `gate.read_head`.

It keeps a bounded number of bounded blocks of lines, and knows no connection.

Spec: docs/lending.md#heads
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final

from sessions.wire.gate import read_head
from sessions.wire.head import Framing, Head

KEPT_COUNT: Final = 256  # a guess: clients of one group that differ in their headers
KEPT_BYTES: Final = 4096  # of the lines of one head; a guess: with this, 1 MiB of keys at the most
KEPT_LINES: Final = 64  # a guess; each parsed line weighs some 100 bytes whatever its length
# A narrow part of what the gate takes: a path of visible ASCII without `#`, single spaces, 1.1.
_PLAIN_LINE: Final = re.compile(
    rb"(GET|HEAD|POST|PUT|PATCH|DELETE|OPTIONS) "
    rb"((/[!\"$->@-~]*+)(?:\?[!\"$-~]*+)?) HTTP/1\.1(?=\r\n)"
)
# So few digits that no limit of a parser is near, and no leading zero.
_LENGTH_LINE: Final = re.compile(rb"\r\n[Cc]ontent-[Ll]ength: (0|[1-9][0-9]{0,14})\r\n")
_NOWHERE: Final = -1


@dataclass(frozen=True, slots=True, kw_only=True)
class _Lines:
    """What the gate made of the header lines of one head.

    Attributes:
        headers: As in `Head`; never handed out itself.
        length_at: Index of the header whose number was cut out, or `_NOWHERE`.
        content_length: As in `Head`, unless the number was cut out.
    """

    headers: list[tuple[bytes, bytes]]
    length_at: int
    content_length: int
    framing: Framing
    keep_alive: bool
    expects_continue: bool


class RepeatedHeads:
    """Reads heads, those that resemble earlier ones without a parser; see the module docstring."""

    def __init__(self) -> None:
        self._kept: dict[bytes, _Lines] = {}

    def read(self, buffer: bytes, start: int, limit_bytes: int) -> Head | None:
        """Do what `gate.read_head` does.

        Args:
            buffer: As there.
            start: As there.
            limit_bytes: As there.

        Returns:
            As there; the list of headers is the caller's own.

        Raises:
            RequestError: As there.
        """
        line = _PLAIN_LINE.match(buffer)
        blank_at = buffer.find(b"\r\n\r\n", max(start - 3, 0))
        if line is None or blank_at < 0 or blank_at + 4 > limit_bytes:
            return read_head(buffer, start, limit_bytes)
        lines_at, end = line.end(), blank_at + 2
        length = _LENGTH_LINE.search(buffer, lines_at, end)
        if length is None:
            key = buffer[lines_at:end]
        else:
            digits_at, digits_end = length.span(1)
            key = buffer[lines_at:digits_at] + buffer[digits_end:end]
        lines = self._kept.get(key)
        # A line without a number has the key of one whose number was cut out.
        if lines is None or (length is None) is not (lines.length_at == _NOWHERE):
            head = read_head(buffer, start, limit_bytes)
            if head is not None:
                self._keep(key, head, has_length=length is not None)
            return head
        headers, content_length = lines.headers.copy(), lines.content_length
        if length is not None:
            digits = length[1]
            headers[lines.length_at] = (b"content-length", digits)
            content_length = int(digits)
        method, target, path = line.groups()
        # By place: eleven names cost 0.8 us.
        return Head(
            method,
            target,
            path,
            "1.1",
            headers,
            end + 2,
            lines.framing,
            content_length,
            lines.keep_alive,
            lines.expects_continue,
            False,  # noqa: FBT003 - by place
        )

    def _keep(self, key: bytes, head: Head, *, has_length: bool) -> None:
        if head.upgrades or len(key) > KEPT_BYTES or len(head.headers) > KEPT_LINES:
            return
        names = [name for name, _ in head.headers]
        if len(self._kept) >= KEPT_COUNT:
            del self._kept[next(iter(self._kept))]  # the oldest
        self._kept[key] = _Lines(
            headers=head.headers.copy(),
            length_at=names.index(b"content-length") if has_length else _NOWHERE,
            content_length=head.content_length,
            framing=head.framing,
            keep_alive=head.keep_alive,
            expects_continue=head.expects_continue,
        )
