"""A client's request as the core sees it: primitives, no server.

Spec: docs/architecture.md#core
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class ClientRequest:
    """One request, its body read.

    Attributes:
        method: Such as "POST"; HEAD is already GET.
        query: The raw query without "?", or b"".
        headers: (name, value), names lower-case, order kept.
        body: The whole body.
        wait_gone: Returns when the client is gone.
        is_head: Whether it was a HEAD.
    """

    method: str
    query: bytes
    headers: Sequence[tuple[bytes, bytes]]
    body: bytes
    wait_gone: Callable[[], Awaitable[None]]
    is_head: bool = False

    def target_of(self, path: bytes) -> bytes:
        """A path with this request's query."""
        return path + b"?" + self.query if self.query else path
