"""One session on a running group, driven by raw requests: what edge cases look at.

Spec: docs/architecture.md#tests
"""

from __future__ import annotations

import json
from typing import Any, Final

from tests.support.raw import Address, RawConnection, request_bytes
from tests.support.replies import Reply

CHAT: Final = "/v1/chat/completions"


def chat_body(text: str = "hi", **fields: object) -> bytes:
    """A chat of one user message; `fields` are added, `sim` tells the simulated engine."""
    messages = [{"role": "user", "content": text}]
    return json.dumps({"model": "sim", "messages": messages, **fields}).encode()


class RawSession:
    """A new session of a group on the simulated engine; every request has its own connection.

    Attributes:
        path: `/sessions/<id>`.
        created: What the creation answered.
    """

    def __init__(self, address: Address) -> None:
        """Create the session."""
        self._address = address
        with RawConnection(address) as connection:
            self.created: dict[str, Any] = json.loads(
                connection.ask(request_bytes("POST", "/sessions")).body
            )
        self.path = f"/sessions/{self.created['session_id']}"

    def ask(
        self,
        method: str,
        rest: str = "",
        headers: tuple[tuple[str, str], ...] = (),
        body: bytes = b"",
        *,
        chunk_bytes: int = 0,
    ) -> Reply:
        """Ask below the session, with `Connection: close`; all that comes is the one reply."""
        data = request_bytes(
            method,
            self.path + rest,
            [*headers, ("Connection", "close")],
            body,
            chunk_bytes=chunk_bytes,
        )
        with RawConnection(self._address) as connection:
            reply = connection.ask(data, head_only=method == "HEAD")
            assert connection.read_to_end() == b""
        return reply

    def chat(
        self, text: str = "hi", headers: tuple[tuple[str, str], ...] = (), **fields: object
    ) -> Reply:
        """One chat of one message."""
        return self.ask("POST", CHAT, headers, chat_body(text, **fields))

    def said(self) -> list[str]:
        """The contents of all recorded replies."""
        records = json.loads(self.ask("GET").body)["records"]
        return [each["response"]["choices"][0]["message"]["content"] for each in records]

    def engine_saw(self) -> int:
        """How many chats the engine of the session's shard ever got."""
        seen: int = json.loads(self.ask("GET", "/sim/requests").body)["seen"]
        return seen
