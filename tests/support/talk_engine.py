"""The simulated engine behind a gate: each chat waits until the test says what is sampled.

The engine's own server, replies and faults are real; the gate holds the request back, notes it,
and writes the script into it. The client's header `x-attempt` tells which attempt it was that
reached the engine.

Spec: docs/sessions.md#model
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any, Final

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from sessions.sim.server import simulated_engine
from sessions.tokens.tokenizer import Tokenizer
from tests.support.waiting import DeadlineError

ATTEMPT: Final = "x-attempt"
_CHAT: Final = "/v1/chat/completions"
_DEADLINE_S: Final = 20.0


@dataclass(slots=True, kw_only=True, eq=False)
class Asked:
    """One chat that reached the engine.

    Attributes:
        name: Of the attempt that asked.
        body: As it was asked.
        script: What the engine shall do, once it is decided.
        is_left: Whoever asked went away before.
    """

    name: str
    body: dict[str, Any]
    script: asyncio.Future[dict[str, Any]] = field(
        default_factory=lambda: asyncio.get_running_loop().create_future()
    )
    is_left: bool = False


class GatedEngine:
    """See the module docstring.

    Attributes:
        url: Where it listens.
        asked: All chats, in the order of their arrival.
    """

    def __init__(self) -> None:
        self.url = ""
        self.asked: list[Asked] = []
        self._changed = asyncio.Event()

    def note_change(self) -> None:
        """Something happened that `wait_for` may wait for."""
        self._changed.set()

    async def wait_for(self, condition: Callable[[], bool], what: str) -> None:
        """Wait for a condition that arrivals and departures at the gate bring about.

        Raises:
            DeadlineError: It did not hold in time.
        """
        try:
            async with asyncio.timeout(_DEADLINE_S):
                while not condition():
                    self._changed.clear()
                    await self._changed.wait()
        except TimeoutError:
            raise DeadlineError(f"not within {_DEADLINE_S:g} s: {what}") from None

    def of(self, name: str) -> list[Asked]:
        """The chats of one attempt."""
        return [asked for asked in self.asked if asked.name == name]

    def around(self, app: ASGIApp) -> ASGIApp:
        """The engine's application behind the gate."""

        async def gated(scope: Scope, receive: Receive, send: Send) -> None:
            if scope["path"] == _CHAT:
                await self._hold(app, scope, receive, send)
            else:
                await app(scope, receive, send)

        return gated

    async def _hold(self, app: ASGIApp, scope: Scope, receive: Receive, send: Send) -> None:
        headers = dict(scope["headers"])
        body = json.loads(await _body_from(receive))
        asked = Asked(name=headers[ATTEMPT.encode()].decode(), body=body)
        self.asked.append(asked)
        self.note_change()
        gone: asyncio.Future[Any] = asyncio.ensure_future(receive())
        try:
            await asyncio.wait([gone, asked.script], return_when=asyncio.FIRST_COMPLETED)
            if not asked.script.done():
                asked.is_left = True
                self.note_change()
                return
            content = json.dumps({**body, "sim": asked.script.result()}).encode()
            messages: list[Message] = [{"type": "http.request", "body": content}]

            async def told() -> Message:
                return messages.pop() if messages else await asyncio.shield(gone)

            await app(scope, told, send)
        finally:
            gone.cancel()


async def _body_from(receive: Receive) -> bytes:
    body, message = b"", await receive()
    while message.get("more_body"):
        body += message["body"]
        message = await receive()
    return body + bytes(message.get("body", b""))


@asynccontextmanager
async def open_gated_engine(tokenizer: Tokenizer) -> AsyncIterator[GatedEngine]:
    """Run one in this loop."""
    engine = GatedEngine()
    async with simulated_engine("sim:?keep_alive_s=600", tokenizer, engine.around) as engine.url:
        yield engine
