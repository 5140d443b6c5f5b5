"""An ASGI application whose every call waits for the test to say what it does.

Spec: docs/architecture.md#tests
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from tests.support.apps import Message, Receive, Send
from tests.support.waiting import wait_until_async


class Call:
    """One request in the hands of a test.

    Attributes:
        scope: As the server gave it.
        is_over: Whether the application has returned or raised.
    """

    def __init__(self, scope: Message, receive: Receive, send: Send) -> None:
        self.scope = scope
        self.is_over = False
        self.receive = receive
        self.send = send
        self._end: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    async def read_body(self) -> bytes | None:
        """The whole body, or None when the client left before its end."""
        body, more = b"", True
        while more:
            message = await self.receive()
            if message["type"] == "http.disconnect":
                return None
            body += message.get("body", b"")
            more = message.get("more_body", False)
        return body

    async def start(
        self, status: int = 200, headers: Sequence[tuple[bytes, bytes]] = (), *, length: int = -1
    ) -> None:
        """Send the reply's head; without a length the reply is chunked."""
        framing = [(b"content-length", b"%d" % length)] if length >= 0 else []
        await self.send(
            {"type": "http.response.start", "status": status, "headers": [*headers, *framing]}
        )

    async def write(self, piece: bytes, *, more: bool = True) -> None:
        """Send a piece of the reply's body."""
        await self.send({"type": "http.response.body", "body": piece, "more_body": more})

    async def reply(
        self, body: bytes = b"", status: int = 200, headers: Sequence[tuple[bytes, bytes]] = ()
    ) -> None:
        """Send a whole framed reply; the application does not return by that."""
        await self.start(status, headers, length=len(body))
        await self.write(body, more=False)

    def end(self) -> None:
        """Let the application return."""
        if not self._end.done():
            self._end.set_result(None)

    def fail(self, error: Exception) -> None:
        """Let the application raise."""
        self._end.set_exception(error)

    async def run(self) -> None:
        """What the application does."""
        try:
            await self._end
        finally:
            self.is_over = True


class HeldApp:
    """The application; `calls` are in the order in which their requests began."""

    def __init__(self) -> None:
        self.calls: list[Call] = []

    async def __call__(self, scope: Message, receive: Receive, send: Send) -> None:
        """Serve one request, or the lifespan at once."""
        if scope["type"] == "lifespan":
            await receive()
            await send({"type": "lifespan.startup.complete"})
            await receive()
            await send({"type": "lifespan.shutdown.complete"})
            return
        call = Call(scope, receive, send)
        self.calls.append(call)
        await call.run()

    async def call(self, number: int = 0) -> Call:
        """The call with this number, as soon as it is there."""
        await wait_until_async(lambda: len(self.calls) > number, f"call {number}")
        return self.calls[number]

    def end_all(self) -> None:
        """Let every call return."""
        for call in self.calls:
            call.end()
