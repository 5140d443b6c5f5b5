"""What an inference engine is to the session core: one whole request, one whole reply.

Headers, paths and bodies pass as they are; what they mean is the core's business. A connection
that breaks, a time-out and a reply that cannot be read are our errors, every status is a reply.

Must not know sessions or tokens.

Spec: docs/architecture.md#engine
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol, TypeAlias

Headers: TypeAlias = Sequence[tuple[bytes, bytes]]


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineRequest:
    """One request to the engine.

    Attributes:
        method: Such as "POST".
        target: Path and query below the engine's base URL, percent-encoded, with the leading "/".
        headers: (name, value), names lower-case, order kept, without host, length and framing.
        body: The whole body.
    """

    method: str
    target: bytes
    headers: Headers
    body: bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineReply:
    """One reply of the engine.

    Attributes:
        status: From 200 up.
        headers: (name, value), names lower-case, order kept, as the engine sent them.
        body: The whole body, decoded if the engine used a content coding.
    """

    status: int
    headers: Headers
    body: bytes

    def header(self, name: bytes) -> bytes:
        """The first value of a header by its lower-case name, or b""."""
        return next((value for key, value in self.headers if key == name), b"")


class Engine(Protocol):
    """An inference engine."""

    async def exchange(self, request: EngineRequest) -> EngineReply:
        """Send a request and read the whole reply.

        Args:
            request: The request.

        Returns:
            The reply, whatever its status. Redirects are not followed, cookies not kept.

        Raises:
            EngineUnreachableError: No connection, or it broke.
            EngineTimeoutError: The engine stood still for too long.
            EngineReplyUnusableError: The reply's coding cannot be read.
            RequestError: The target makes no URL.
        """
        ...
