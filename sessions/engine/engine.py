"""What an inference engine is to the session core: one whole request, one whole reply.

Headers, paths and bodies pass as they are; what they mean is the core's business. A connection
that breaks, a time-out and a reply that cannot be read are our errors, every status is a reply.
A reply's body is collected, or goes piece by piece, as it arrives, to a sink of the caller.

Must not know sessions or tokens.

Spec: docs/architecture.md#engine
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
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
        affinity: A session id: all requests that name it go to one engine for as long as that
            lives. Empty for any engine.
    """

    method: str
    target: bytes
    headers: Headers
    body: bytes
    affinity: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineReply:
    """One reply of the engine.

    Attributes:
        status: From 200 up.
        headers: (name, value), names lower-case, order kept, as the engine sent them.
        body: The whole body, decoded if the engine used a content coding; b"" if a sink took it.
        is_sunk: A sink took the body.
    """

    status: int
    headers: Headers
    body: bytes
    is_sunk: bool = False

    def header(self, name: bytes) -> bytes:
        """The first value of a header by its lower-case name, or b""."""
        return next((value for key, value in self.headers if key == name), b"")


class ReplySink(Protocol):
    """Takes one reply's body while it arrives; makes its sender wait when it has no room."""

    def feed(self, piece: memoryview) -> bool:
        """Take the next bytes of the decoded body, in order.

        Args:
            piece: Not empty; shared only during the call.

        Returns:
            False when nothing more may be fed until `wait_room` returned; this piece is taken.
        """
        ...

    async def wait_room(self) -> None:
        """Wait until `feed` may be called again.

        Raises:
            ClientVisibleError: There will be no room; the exchange fails with this error.
        """
        ...


# Called with status and headers (names lower-case) of the final head. None: collect the body.
OpenSink: TypeAlias = Callable[[int, Headers], ReplySink | None]


class Engine(Protocol):
    """An inference engine."""

    async def exchange(
        self, request: EngineRequest, open_sink: OpenSink | None = None
    ) -> EngineReply:
        """Send a request and read the whole reply.

        Args:
            request: The request.
            open_sink: Asked once, when the reply's final head is there. Bytes that a sink took
                before the exchange failed are its caller's to forget.

        Returns:
            The reply, whatever its status. Redirects are not followed, cookies not kept.

        Raises:
            EngineUnreachableError: No connection, or it broke.
            EngineTimeoutError: The engine stood still for too long.
            EngineReplyUnusableError: The reply's coding cannot be read.
            RequestError: The target makes no URL.
            ClientVisibleError: What the sink raised.
        """
        ...

    def forget(self, affinity: str) -> None:
        """No more requests will name this session; unknown ids are ignored."""
        ...
