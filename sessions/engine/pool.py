"""The connections to one engine: idle ones are used again, the warmest first.

There is no limit on those in use: an engine queues better than we do. Idle ones are few enough to
be counted and are closed before engines do that (5 s on uvicorn), so that a request seldom meets
a connection that is about to end.

Must not know requests, replies or other engines.

Spec: docs/architecture.md#engine
"""

from __future__ import annotations

import asyncio
import ssl
from collections import OrderedDict
from typing import Final

from sessions.engine.address import EngineAddress
from sessions.engine.connection import EngineConnection
from sessions.engine.failures import reason_of
from sessions.errors.engine import EngineUnreachableError

IDLE_S: Final = 4.0
IDLE_CONNECTIONS: Final = 1024


class EnginePool:
    """See the module docstring. `close` it in the end.

    Attributes:
        address: The engine's.
        in_use: Exchanges that run now, those that still connect included; the client counts.
    """

    def __init__(
        self,
        address: EngineAddress,
        *,
        buffer: memoryview,
        connect_timeout_s: float,
        tls: ssl.SSLContext | None,
        idle_s: float = IDLE_S,
        idle_connections: int = IDLE_CONNECTIONS,
    ) -> None:
        """Connect to nothing yet.

        Args:
            address: The engine's.
            buffer: Connections receive into it.
            connect_timeout_s: How long a connection may take, TLS included.
            tls: For https.
            idle_s: How long a connection may idle.
            idle_connections: How many may.
        """
        self.address = address
        self.in_use = 0
        self._buffer = buffer
        self._connect_timeout_s = connect_timeout_s
        self._tls = tls
        self._idle_s = idle_s
        self._idle_limit = idle_connections
        # When each began to idle, oldest first.
        self._idle: OrderedDict[EngineConnection, float] = OrderedDict()
        self._open: set[EngineConnection] = set()
        self._timer: asyncio.TimerHandle | None = None

    @property
    def idle_count(self) -> int:
        """Connections that idle."""
        return len(self._idle)

    @property
    def open_count(self) -> int:
        """Connections that are open, in use or idle."""
        return len(self._open)

    async def take(self, *, is_fresh: bool) -> EngineConnection:
        """A connection for one exchange.

        Args:
            is_fresh: Make a new one even if others idle.

        Raises:
            EngineUnreachableError: None can be made; not a byte was sent.
        """
        while self._idle and not is_fresh:
            connection, _ = self._idle.popitem()
            if connection.is_usable:
                return connection
        return await self._connect()

    def give_back(self, connection: EngineConnection) -> None:
        """Take a connection back after an exchange that went well."""
        if not connection.is_usable:
            return
        if len(self._idle) >= self._idle_limit:
            connection.abort()
            return
        loop = asyncio.get_running_loop()
        self._idle[connection] = loop.time()
        if self._timer is None:
            self._timer = loop.call_later(self._idle_s, self._expire)

    async def close(self) -> None:
        """Close all connections, and wait until they are."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        ending = list(self._open)
        for connection in ending:
            connection.abort()
        for connection in ending:
            await connection.wait_closed()

    async def _connect(self) -> EngineConnection:
        address, loop = self.address, asyncio.get_running_loop()
        try:
            async with asyncio.timeout(self._connect_timeout_s):
                _, connection = await loop.create_connection(
                    lambda: EngineConnection(self._buffer, self._on_end),
                    address.host,
                    address.port,
                    ssl=self._tls,
                    server_hostname=address.host if self._tls is not None else None,
                )
        except TimeoutError as error:
            raise EngineUnreachableError(
                "the engine did not accept a connection in time"
            ) from error
        except OSError as error:
            raise EngineUnreachableError(
                f"the engine cannot be reached: {reason_of(error)}"
            ) from error
        if not connection.is_usable:
            raise EngineUnreachableError("the engine ended the connection at once")
        self._open.add(connection)
        return connection

    def _on_end(self, connection: EngineConnection) -> None:
        self._idle.pop(connection, None)
        self._open.discard(connection)

    def _expire(self) -> None:
        """Close what idled long enough; look again when the next one will have."""
        loop = asyncio.get_running_loop()
        self._timer = None
        while self._idle:
            connection, since = next(iter(self._idle.items()))
            left_s = since + self._idle_s - loop.time()
            if left_s > 0:
                self._timer = loop.call_later(left_s, self._expire)
                return
            del self._idle[connection]
            connection.abort()
