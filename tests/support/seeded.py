"""Environments of seeded sessions without a server, and what a test asks of them.

Spec: docs/architecture.md#tests
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any, Final

import httpx

from sessions.routing.claim_keys import claim_key
from sessions.routing.claimed_kinds import ENVIRONMENT
from sessions.tools.claims import LocalClaims
from sessions.tools.context import ToolContext
from tests.support.episodes import Run, context_of
from tests.support.resources_app import CounterResources
from tests.support.rollouts import serve_state

FIELD: Final = "resources_session_id"
TOKEN_HEADER: Final = "X-NeMo-Gym-Session-Token"


def cookie_of(reply: httpx.Response) -> dict[str, str]:
    """The `Cookie` header that a reply asks for; empty if it brings none."""
    values = reply.headers.get_list("set-cookie")
    assert len(values) < 2, values
    return {"cookie": values[0].partition(";")[0]} if values else {}


@dataclass(frozen=True, slots=True, kw_only=True)
class Seeding:
    """A session as its agent has it.

    Attributes:
        id: Of the session.
        told: The body of the seed's reply.
        cookie: To send with every call.
    """

    id: str
    told: dict[str, Any]
    cookie: dict[str, str]

    @property
    def token(self) -> dict[str, str]:
        """What a client of MCP sends instead."""
        found: dict[str, str] = self.told["mcp"]["headers"]
        return found


def seeding_of(reply: httpx.Response) -> Seeding:
    """What the reply to a seed tells."""
    assert reply.status_code == 200, reply.text
    told = reply.json()
    return Seeding(id=told[FIELD], told=told, cookie=cookie_of(reply))


@dataclass(frozen=True, slots=True, kw_only=True)
class Scene:
    """An environment whose lifespan runs.

    Attributes:
        environment: Itself.
        asgi: Its application, state included.
    """

    environment: CounterResources
    asgi: Any

    async def ask(
        self, path: str, body: object = None, headers: Mapping[str, str] | None = None
    ) -> httpx.Response:
        """One POST, without a memory for cookies."""
        return await self.begin(path, body, headers).reply()

    def begin(
        self, path: str, body: object = None, headers: Mapping[str, str] | None = None
    ) -> Run:
        """One POST whose client may leave."""
        return Run(self.asgi, {} if body is None else body, path, headers)

    async def seed(self, session_id: str | None = None, **payload: object) -> Seeding:
        """Seed a session."""
        return seeding_of(await self.try_seed(session_id, **payload))

    async def try_seed(self, session_id: str | None = None, **payload: object) -> httpx.Response:
        """The reply to a seed."""
        return await self.ask("/seed_session", seed_body(session_id, **payload))

    async def close(self, session_id: str) -> httpx.Response:
        """The reply to a close that names its session."""
        return await self.ask("/close_session", {FIELD: session_id})


class GatedClaims(LocalClaims):
    """Claims that can be looked at, and made to wait."""

    def __init__(self) -> None:
        super().__init__()
        self.gate = asyncio.Event()
        self.gate.set()
        self.waiting = 0

    async def claim(self, key: bytes) -> None:
        self.waiting += 1
        try:
            await self.gate.wait()
        finally:
            self.waiting -= 1
        await super().claim(key)

    def holds(self, name: str, kind: str = ENVIRONMENT) -> bool:
        return claim_key(kind, name) in self._held

    @property
    def count(self) -> int:
        return len(self._held)


def seed_body(session_id: str | None = None, **payload: object) -> dict[str, object]:
    """The body of a seed."""
    return payload if session_id is None else {FIELD: session_id, **payload}


@asynccontextmanager
async def open_scene(context: ToolContext | None = None) -> AsyncIterator[Scene]:
    """An environment with its application."""
    environment = CounterResources(context or context_of())
    async with serve_state(environment.app()) as asgi:
        yield Scene(environment=environment, asgi=asgi)
