"""Mixed traffic: clients that do on one connection, one after another, all that clients do.

`run_mix` runs some clients against a server with the `cases` application. Each picks exchanges at
random (seeded), of many sessions on the same connection, and checks every byte of every reply:
lengths and digests of what the server read, and a reply pattern that only this request gives. A
reply that belongs to another request, a lost one or a wrong body fails at once.

Spec: docs/architecture.md#tests
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Final

from tests.support.apps import pattern_of, receipt_of
from tests.support.raw import Address, AsyncRawConnection, open_raw, request_bytes
from tests.support.replies import Reply

_SLOW_BYTES: Final = 600_000  # more than a socket buffer of the slow reader holds
_SLOW_BUFFER_BYTES: Final = 4096


@dataclass(slots=True, kw_only=True)
class Tally:
    """What a mix did.

    Attributes:
        exchanges: Replies that were read and right.
        connections: That were opened.
    """

    exchanges: int = 0
    connections: int = 0


class _Client:
    """One client: a connection at a time, an exchange at a time unless it pipelines."""

    def __init__(self, rng: random.Random, name: str, tally: Tally) -> None:
        self._rng = rng
        self._name = name
        self._tally = tally
        self._serial = 0
        self.connection: AsyncRawConnection

    def target(self, **options: object) -> tuple[str, str]:
        """A fresh target in a random session, and the seed of its reply."""
        self._serial += 1
        seed = f"{self._name}.{self._serial}"
        query = "&".join([f"id={seed}", *(f"{key}={value}" for key, value in options.items())])
        prefix = f"/sessions/s{self._rng.randrange(64)}" if self._rng.random() < 0.9 else "/plain"
        return f"{prefix}/echo?{query}", seed

    def body(self, limit_bytes: int = 3000) -> bytes:
        """A random body."""
        return self._rng.randbytes(self._rng.randrange(limit_bytes))

    def check(self, reply: Reply, seed: str, *, status: int = 200, body: bytes, out: int) -> None:
        """Fail unless this is the reply of that request."""
        assert reply.status == status, (reply.status, reply.body[:200], seed)
        assert reply.header("x-id") == seed
        assert reply.body == pattern_of(seed, out)
        if status == 200:
            assert reply.header("x-got") == receipt_of(body)
        self._tally.exchanges += 1

    # --- kinds of exchanges; each leaves the connection usable or returns False

    async def plain(self) -> bool:
        out, body = self._rng.randrange(4000), self.body()
        target, seed = self.target(out=out)
        reply = await self.connection.ask(request_bytes("POST", target, body=body))
        self.check(reply, seed, body=body, out=out)
        return True

    async def get(self) -> bool:
        out = self._rng.randrange(4000)
        target, seed = self.target(out=out, ch=1)
        reply = await self.connection.ask(request_bytes("GET", target))
        self.check(reply, seed, body=b"", out=out)
        return True

    async def head(self) -> bool:
        target, seed = self.target(out=100)
        reply = await self.connection.ask(request_bytes("HEAD", target), head_only=True)
        self.check(reply, seed, body=b"", out=0)
        return True

    async def chunked(self) -> bool:
        body = self.body(20_000)
        target, seed = self.target(out=50)
        data = request_bytes("POST", target, body=body, chunk_bytes=self._rng.randrange(1, 5000))
        await self.connection.send(data, piece_bytes=self._rng.choice([0, 700]))
        self.check(await self.connection.read_reply(), seed, body=body, out=50)
        return True

    async def upload(self) -> bool:
        body = self._rng.randbytes(self._rng.randrange(400_000))
        target, seed = self.target(out=10)
        reply = await self.connection.ask(request_bytes("POST", target, body=body))
        self.check(reply, seed, body=body, out=10)
        return True

    async def early(self) -> bool:
        """The reply comes before the body was sent; the next request follows the body."""
        target, seed = self.target(early=1)
        data = request_bytes("POST", target, body=self.body(50_000) + b"GET / HTTP/1.1\r\n\r\n")
        cut = data.index(b"\r\n\r\n") + 4 + self._rng.randrange(10)
        await self.connection.send(data[:cut])
        reply = await self.connection.read_reply()
        self.check(reply, seed, status=413, body=b"", out=100)
        await self.connection.send(data[cut:])
        return True

    async def continued(self) -> bool:
        body = self.body()
        target, seed = self.target(out=5)
        data = request_bytes("POST", target, [("Expect", "100-continue")], body)
        cut = data.index(b"\r\n\r\n") + 4
        await self.connection.send(data[:cut])
        await self.connection.send(data[cut:])
        self.check(await self.connection.read_reply(), seed, body=body, out=5)
        return True

    async def pipelined(self) -> bool:
        count = self._rng.randrange(2, 6)
        bodies = [self.body(500) for _ in range(count)]
        targets = [self.target(out=30) for _ in range(count)]
        requests = [
            request_bytes("POST", target, body=body, chunk_bytes=self._rng.choice([0, 100]))
            for (target, _), body in zip(targets, bodies, strict=True)
        ]
        await self.connection.send(b"".join(requests), piece_bytes=self._rng.choice([0, 333]))
        for (_, seed), body in zip(targets, bodies, strict=True):
            self.check(await self.connection.read_reply(), seed, body=body, out=30)
        return True

    async def slow(self) -> bool:
        """Read a large reply late and send the next request at once."""
        target, seed = self.target(out=_SLOW_BYTES)
        next_target, next_seed = self.target(out=20)
        requests = request_bytes("GET", target) + request_bytes("GET", next_target)
        await self.connection.send(requests)
        self.check(await self.connection.read_reply(), seed, body=b"", out=_SLOW_BYTES)
        self.check(await self.connection.read_reply(), next_seed, body=b"", out=20)
        return True

    async def probe(self) -> bool:
        reply = await self.connection.ask(request_bytes("GET", "/livez"))
        assert reply.status == 200
        self._tally.exchanges += 1
        return True

    async def drip(self) -> bool:
        target, seed = self.target(out=2000, drip=1, sleep=0.01)
        reply = await self.connection.ask(request_bytes("GET", target))
        self.check(reply, seed, body=b"", out=2000)
        return True

    async def last(self) -> bool:
        """The server closes after the reply."""
        target, seed = self.target(out=40, cl=1)
        reply = await self.connection.ask(request_bytes("POST", target, body=b"x"))
        self.check(reply, seed, body=b"x", out=40)
        assert await self.connection.read_to_end() == b""
        return False

    async def gone(self) -> bool:
        """The client leaves in the middle of its request or of the reply."""
        target, _ = self.target(out=100_000, drip=1)
        data = request_bytes("POST", target, body=self.body())
        await self.connection.send(data[: self._rng.randrange(1, len(data) + 1)])
        if self._rng.random() < 0.5:
            self.connection.reset()
        return False

    def kinds(self) -> list[Callable[[], Awaitable[bool]]]:
        """Every kind, the frequent ones several times."""
        often = [self.plain, self.get, self.chunked, self.pipelined] * 3
        rare = [self.head, self.upload, self.early, self.continued, self.slow, self.probe]
        return [*often, *rare, self.drip, self.last, self.gone]

    async def run(self, address: Address, exchanges: int) -> None:
        """Open connections and do exchanges until the tally of this client is full."""
        left = exchanges
        while left > 0:
            buffer_bytes = _SLOW_BUFFER_BYTES if self._rng.random() < 0.2 else 0
            async with open_raw(address, receive_buffer_bytes=buffer_bytes) as connection:
                self.connection = connection
                self._tally.connections += 1
                usable = True
                while usable and left > 0 and self._rng.random() < 0.97:
                    left -= 1
                    usable = await self._rng.choice(self.kinds())()


async def run_mix(address: Address, *, clients: int, exchanges: int, seed: int) -> Tally:
    """Run clients at the same time.

    Args:
        address: Of a server with the `cases` application.
        clients: How many at a time.
        exchanges: Of each client.
        seed: Makes the mix reproducible.

    Raises:
        AssertionError: A reply was wrong.
        TimeoutError: A reply did not come.
    """
    tally = Tally()
    async with asyncio.TaskGroup() as tasks:
        for number in range(clients):
            client = _Client(random.Random(seed * 1000 + number), f"{seed}-{number}", tally)
            tasks.create_task(client.run(address, exchanges))
    return tally
