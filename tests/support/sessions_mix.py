"""Many sessions, each with its life from create to delete, over whatever connections.

Spec: docs/architecture.md#tests
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import random
from collections import Counter
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass, field
from typing import Any

from tests.support.raw import Address, AsyncRawConnection, open_raw, request_bytes


@dataclass(slots=True, kw_only=True)
class Lives:
    """What came of many sessions.

    Attributes:
        statuses: How often each status came, over all calls.
        wrong: Calls that did not get what their session holds, in words.
    """

    statuses: Counter[int] = field(default_factory=Counter)
    wrong: list[str] = field(default_factory=list)


class Connections:
    """Where the calls go: a new connection each, or some kept-alive ones shared by all."""

    def __init__(self, address: Address, kept: Sequence[AsyncRawConnection]) -> None:
        self._address = address
        self._free = asyncio.Queue[AsyncRawConnection]()
        self._is_kept = bool(kept)
        for connection in kept:
            self._free.put_nowait(connection)

    @contextlib.asynccontextmanager
    async def take(self) -> AsyncIterator[AsyncRawConnection]:
        """A connection for one call."""
        if not self._is_kept:
            async with open_raw(self._address, timeout_s=60) as connection:
                yield connection
            return
        connection = await self._free.get()
        try:
            yield connection
        finally:
            self._free.put_nowait(connection)


class _Life:
    """One session from create to delete."""

    def __init__(self, connections: Connections, lives: Lives, number: int) -> None:
        self._connections = connections
        self._lives = lives
        self._number = number

    async def _call(self, method: str, path: str, body: object = None) -> tuple[int, Any]:
        data = b"" if body is None else json.dumps(body).encode()
        async with self._connections.take() as connection:
            reply = await connection.ask(request_bytes(method, path, body=data))
        self._lives.statuses[reply.status] += 1
        return reply.status, json.loads(reply.body) if reply.body else None

    async def run(self, turns: int) -> None:
        _, created = await self._call("POST", "/sessions")
        path = f"/sessions/{created['session_id']}"
        said = []
        messages: list[dict[str, Any]] = []
        for turn in range(turns):
            messages.append({"role": "user", "content": f"session {self._number} turn {turn}"})
            said.append(f"answer {self._number}.{turn}")
            body = {"model": "sim", "messages": messages, "sim": {"content": said[-1]}}
            status, reply = await self._call("POST", f"{path}/v1/chat/completions", body)
            if status != 200:
                self._lives.wrong.append(f"turn {turn}: {status} {reply}")
                return
            messages.append(reply["choices"][0]["message"])
        status, records = await self._call("GET", path)
        found = status == 200 and [
            record["response"]["choices"][0]["message"]["content"] for record in records["records"]
        ]
        if found != said or records["metadata"]["tito_session_mismatch"]:
            self._lives.wrong.append(f"records: {status} {found} instead of {said}")
        status, _ = await self._call("DELETE", path)
        if status != 204:
            self._lives.wrong.append(f"delete: {status}")
        status, _ = await self._call("GET", path)
        if status != 410:
            self._lives.wrong.append(f"after delete: {status}")


async def live_sessions(
    address: Address, *, sessions: int, turns: int, kept_connections: int, at_a_time: int = 20
) -> Lives:
    """Run many sessions, shuffled among each other.

    Args:
        address: Of a server on the simulated engine.
        sessions: How many.
        turns: Chats of each.
        kept_connections: How many kept-alive connections all calls share; 0 = a new one each.
        at_a_time: Sessions in progress together.
    """
    lives = Lives()
    limit = asyncio.Semaphore(at_a_time)
    async with contextlib.AsyncExitStack() as stack:
        kept = [
            await stack.enter_async_context(open_raw(address, timeout_s=60))
            for _ in range(kept_connections)
        ]
        connections = Connections(address, kept)

        async def live(number: int) -> None:
            async with limit:
                await _Life(connections, lives, number).run(turns)

        order = list(range(sessions))
        random.Random(sessions).shuffle(order)
        async with asyncio.TaskGroup() as tasks:
            for number in order:
                tasks.create_task(live(number))
    return lives
