"""Many connections at once, and bodies of many bytes, against one server with `flight_app`.

Spec: docs/architecture.md#tests
"""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import json
from typing import Final

from tests.support.apps import pattern_of, receipt_of
from tests.support.flight_app import REPLY_BYTES
from tests.support.ids import ids_of_shard
from tests.support.raw import Address, AsyncRawConnection, open_raw, request_bytes
from tests.support.replies import Reply

TIMEOUT_S: Final = 60.0
REFUSED_COUNT: Final = 100  # more than may linger beyond the limit at once


async def open_many(
    stack: contextlib.AsyncExitStack, address: Address, count: int
) -> list[AsyncRawConnection]:
    """Connections, closed with the stack."""
    opened = (open_raw(address, timeout_s=TIMEOUT_S) for _ in range(count))
    return [await stack.enter_async_context(connection) for connection in opened]


async def ask(connection: AsyncRawConnection, number: int) -> Reply:
    """One small exchange of one of many sessions; checks a 200 to its last byte."""
    seed = f"c{number}"
    target = f"/sessions/s{number % 97}/echo?id={seed}&out={REPLY_BYTES}"
    body = f"body {number}".encode()
    reply = await connection.ask(request_bytes("POST", target, body=body))
    if reply.status == 200:
        assert reply.body == pattern_of(seed, REPLY_BYTES), seed
        assert reply.header("x-got") == receipt_of(body), seed
    return reply


async def statuses_of_idle(address: Address, count: int) -> list[set[int]]:
    """Idle connections that are asked again, each for a session of another shard than before.

    Returns:
        The statuses of the first round and of the second.
    """
    async with contextlib.AsyncExitStack() as stack:
        connections = await open_many(stack, address, count)
        rounds = []
        for offset in (0, 1):
            asked = (ask(each, number + offset) for number, each in enumerate(connections))
            rounds.append({reply.status for reply in await asyncio.gather(*asked)})
        return rounds


async def hold_many(address: Address, shards: int, count: int) -> int:
    """Exchanges that all wait in their shards at the same time, then are all answered.

    Returns:
        How many the shards had at once.
    """
    sessions = [ids_of_shard(shard, shards)[0] for shard in range(shards)]
    async with contextlib.AsyncExitStack() as stack:
        connections = await open_many(stack, address, count)
        for number, connection in enumerate(connections):
            target = f"/sessions/{sessions[number % shards]}/hold?id=h{number}"
            await connection.send(request_bytes("POST", target, body=b"h"))
        (control,) = await open_many(stack, address, 1)
        held = 0
        async with asyncio.timeout(TIMEOUT_S):
            while held < count:
                held = sum([await _held(control, session) for session in sessions])
        for session in sessions:
            await control.ask(request_bytes("GET", f"/sessions/{session}/release"))
        replies = await asyncio.gather(*(each.read_reply() for each in connections))
        for number, reply in enumerate(replies):
            assert reply.body == pattern_of(f"h{number}", REPLY_BYTES), number
        return held


async def _held(control: AsyncRawConnection, session: str) -> int:
    reply = await control.ask(request_bytes("GET", f"/sessions/{session}/begun"))
    return len(json.loads(reply.body))


async def refuse_beyond(address: Address, limit: int) -> list[Reply]:
    """Fill a server to its limit of connections, knock, and come again when some have left.

    Args:
        address: Of a server that has this limit and no connection.
        limit: SESSIONS_MAX_CONNECTIONS.

    Returns:
        The replies of those beyond the limit, all of which had sent a whole request before.
    """
    async with contextlib.AsyncExitStack() as stack:
        inside = await open_many(stack, address, limit)
        for number, connection in enumerate(inside):
            assert (await ask(connection, number)).status == 200
        outside = await open_many(stack, address, REFUSED_COUNT)
        refused = await asyncio.gather(*(ask(each, n) for n, each in enumerate(outside)))
        for connection in outside:
            connection.close()
        for number, connection in enumerate(inside):  # nobody inside has noticed
            assert (await ask(connection, number)).status == 200
        for connection in inside[: limit // 2]:
            connection.close()
        await _wait_served(address, limit // 2)
        return refused


async def _wait_served(address: Address, count: int) -> None:
    """Wait until this many new connections are served at the same time."""
    async with asyncio.timeout(TIMEOUT_S):
        statuses = {503}
        while statuses != {200}:
            async with contextlib.AsyncExitStack() as stack:
                connections = await open_many(stack, address, count)
                asked = (ask(each, number) for number, each in enumerate(connections))
                statuses = {reply.status for reply in await asyncio.gather(*asked)}


async def carry_large(address: Address, size_bytes: int) -> None:
    """One body of many bytes each way, at the same time on two sessions, checked by digest."""
    await asyncio.gather(_upload(address, size_bytes), _download(address, size_bytes))


async def _upload(address: Address, size_bytes: int) -> None:
    body = pattern_of("up", size_bytes)
    async with open_raw(address, timeout_s=TIMEOUT_S) as connection:
        for chunk_bytes in (0, 1 << 20):
            data = request_bytes("POST", "/sessions/u/echo", body=body, chunk_bytes=chunk_bytes)
            await connection.send(data)
            reply = await connection.read_reply()
            assert (reply.status, reply.header("x-got")) == (200, receipt_of(body))


async def _download(address: Address, size_bytes: int) -> None:
    digest = hashlib.blake2b(pattern_of("down", size_bytes)).digest()
    async with open_raw(address, timeout_s=TIMEOUT_S) as connection:
        for option in ("", "&ch=1"):
            target = f"/sessions/d/echo?id=down&out={size_bytes}{option}"
            reply = await connection.ask(request_bytes("GET", target))
            assert hashlib.blake2b(reply.body).digest() == digest
