"""The client of one MCP request: its body, its reply, and whether it is still there.

The SDK reads a body to its end before anything else, so it is read here, within a limit. From then
on all that can come from the client is that it leaves; `watch` waits for that and cancels the
request, unless its reply is out. The SDK's own `receive` hears of it as well.

Spec: docs/tools.md#mcp
"""

from __future__ import annotations

import anyio
from starlette.types import Message, Receive, Send

from sessions.errors.protocol import BodyTooLargeError


class McpClient:
    """See the module docstring; `receive` and `send` are for the SDK."""

    def __init__(self, receive: Receive, send: Send) -> None:
        self._receive = receive
        self._send = send
        self._body: bytes | None = b""
        self._is_gone = anyio.Event()
        self._is_answered = False

    async def read_body(self, limit_bytes: int) -> bool:
        """Read the whole body.

        Args:
            limit_bytes: The most that it may have.

        Returns:
            Whether it came; if not, the client is gone.

        Raises:
            BodyTooLargeError: It is longer; the rest is not read.
        """
        pieces = []
        size = 0
        while True:
            message = await self._receive()
            if message["type"] != "http.request":
                return False
            piece = message.get("body", b"")
            size += len(piece)
            if size > limit_bytes:
                raise BodyTooLargeError(f"a request to MCP may have {limit_bytes} bytes")
            pieces.append(piece)
            if not message.get("more_body", False):
                self._body = b"".join(pieces)
                return True

    async def watch(self, scope: anyio.CancelScope) -> None:
        """Wait until the client leaves, then cancel the scope if it has no whole reply yet."""
        while (await self._receive())["type"] != "http.disconnect":
            pass
        self._is_gone.set()
        if not self._is_answered:
            scope.cancel()

    async def receive(self) -> Message:
        """The body, in one message; then, once the client has left, that it did."""
        if self._body is not None:
            body, self._body = self._body, None
            return {"type": "http.request", "body": body, "more_body": False}
        await self._is_gone.wait()
        return {"type": "http.disconnect"}

    async def send(self, message: Message) -> None:
        """Pass a part of the reply on."""
        await self._send(message)
        is_body = message["type"] == "http.response.body"
        self._is_answered |= is_body and not message.get("more_body", False)
