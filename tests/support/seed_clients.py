"""Clients of seeded sessions on real groups: one request a connection, no cookie jar but ours.

Spec: docs/architecture.md#tests
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from tests.support.group import RunningGroup
from tests.support.raw import open_raw, request_bytes
from tests.support.replies import Reply
from tests.support.seeded import FIELD, seed_body


def told(reply: Reply) -> dict[str, Any]:
    """The body of a 200."""
    assert reply.status == 200, reply.body
    found: dict[str, Any] = json.loads(reply.body)
    return found


def refused(reply: Reply, status: int) -> tuple[str, str]:
    """The code and the message of a refusal."""
    assert reply.status == status, (reply.status, reply.body)
    assert reply.header("content-type") == "application/json"
    assert reply.header("www-authenticate") is None
    error = json.loads(reply.body)["error"]
    return error.get("data", error)["code"], error["message"]


def cookies_of(reply: Reply) -> dict[str, str]:
    """The `Cookie` header that a reply asks for; empty if it brings none."""
    values = reply.values("set-cookie")
    return {"cookie": "; ".join(value.partition(";")[0] for value in values)} if values else {}


async def post(
    group: RunningGroup, path: str, body: object = None, headers: Mapping[str, str] | None = None
) -> Reply:
    """One request on a new connection."""
    async with open_raw(group.address) as connection:
        return await connection.ask(post_bytes(path, body, headers))


def post_bytes(path: str, body: object = None, headers: Mapping[str, str] | None = None) -> bytes:
    """The bytes of a request."""
    content = json.dumps({} if body is None else body).encode()
    return request_bytes("POST", path, list((headers or {}).items()), content)


@dataclass(kw_only=True)
class Client:
    """An agent that has seeded a session, and keeps only the last reply's cookies.

    Attributes:
        told: The seed's reply.
        cookie: To send with the next call.
    """

    group: RunningGroup
    told: dict[str, Any]
    cookie: dict[str, str]

    @property
    def id(self) -> str:
        """Of the session."""
        found: str = self.told[FIELD]
        return found

    @property
    def shard(self) -> int:
        """Where it was seeded."""
        found: int = self.told["shard"]
        return found

    @property
    def token(self) -> dict[str, str]:
        """What a client of MCP sends."""
        found: dict[str, str] = self.told["mcp"]["headers"]
        return found

    async def post(self, path: str, body: object = None) -> Reply:
        """A call on a new connection; from now on with the cookies of its reply."""
        reply = await post(self.group, path, body, self.cookie)
        self.cookie = cookies_of(reply)
        return reply

    async def add(self, n: int) -> dict[str, Any]:
        """Add n."""
        return told(await self.post("/add", {"n": n}))


async def try_seed(group: RunningGroup, session_id: str | None = None, **payload: object) -> Reply:
    """The reply to a seed."""
    return await post(group, "/seed_session", seed_body(session_id, **payload))


async def seed(group: RunningGroup, session_id: str | None = None, **payload: object) -> Client:
    """Seed a session."""
    reply = await try_seed(group, session_id, **payload)
    return Client(group=group, told=told(reply), cookie=cookies_of(reply))


async def close(group: RunningGroup, session_id: str) -> Reply:
    """The reply to a close by id."""
    return await post(group, "/close_session", {FIELD: session_id})
