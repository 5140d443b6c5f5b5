"""A request head, as the gate read it.

`Head` is what everything above knows of a request before its body: the router names a session by
it, the connection machine counts the body by it. It holds copies; the raw bytes stay with the
caller, who lends them unchanged. It knows no socket and no session.

Spec: docs/lending.md#heads
"""

from __future__ import annotations

import enum
from dataclasses import dataclass


class Framing(enum.Enum):
    """How a request says where its body ends (RFC 9112 section 6.3)."""

    NONE = enum.auto()
    LENGTH = enum.auto()
    CHUNKED = enum.auto()


@dataclass(slots=True)
class Head:
    """One request head.

    Nobody changes it after the gate: freezing would cost a microsecond, keyword-only fields 0.8.

    Attributes:
        method: As sent, e.g. `POST`.
        target: As sent.
        path: The target's path, still percent-encoded, without the query; of an absolute-form
            target the path alone. ASCII; starts with a slash.
        http_version: `1.1` or `1.0`.
        headers: list of (name, value), names lower-case, order kept; a value has no leading white
            space, trailing white space is kept, as a uvicorn hands it to the application.
        size: Bytes of the head, from the method to the blank line's last byte.
        framing: How the body's end is known.
        content_length: Bytes of the body under `Framing.LENGTH`, else 0.
        keep_alive: Whether a uvicorn would keep the connection: HTTP/1.1 without `close`.
        expects_continue: Whether a uvicorn would answer 100 before it reads the body.
        upgrades: Whether a header is named `Upgrade`, so that the raw bytes need
            `sessions.wire.gate.neutralise_upgrade`.
    """

    method: bytes
    target: bytes
    path: bytes
    http_version: str
    headers: list[tuple[bytes, bytes]]
    size: int
    framing: Framing
    content_length: int
    keep_alive: bool
    expects_continue: bool
    upgrades: bool

    @property
    def has_body(self) -> bool:
        """Whether body bytes follow the head."""
        return self.framing is Framing.CHUNKED or self.content_length > 0

    def values(self, name: bytes) -> list[bytes]:
        """The values of all lines of a header, in order.

        Args:
            name: Lower-case.
        """
        return [value for found, value in self.headers if found == name]
