"""Engines over HTTP/1.1: the client that sends a request to one of them and reads its reply.

A request goes to its session's engine over an idle connection or a new one. If no connection can
be made it goes to another engine. If a connection that was used before ends without a byte of a
reply, the engine had closed it: the request is sent once more, on a new one. Nothing else is
repeated; clients and their SDKs decide about that.

No proxies of the environment, no cookies, no redirects. Must not know sessions or tokens.

Spec: docs/architecture.md#engine
"""

from __future__ import annotations

import logging
import ssl
from collections.abc import Sequence
from typing import Final

from sessions.engine.address import parse_address
from sessions.engine.choice import EngineChoice
from sessions.engine.connection import EngineConnection
from sessions.engine.engine import EngineReply, EngineRequest, OpenSink
from sessions.engine.pool import EnginePool
from sessions.engine.reply_reader import ReplyReader
from sessions.engine.request_head import render_request_head
from sessions.errors.client_visible import ClientVisibleError
from sessions.errors.engine import (
    EngineReplyUnusableError,
    EngineTimeoutError,
    EngineUnreachableError,
)

_log = logging.getLogger(__name__)

# Measured: 64 KiB costs a third more, 512 KiB nothing less; a core's cache holds it.
BUFFER_BYTES: Final = 262144


class HttpEngines:
    """See the module docstring; implements `Engine`. Make it in a running loop; `close` it."""

    def __init__(
        self, base_urls: Sequence[str], *, timeout_s: float, connect_timeout_s: float
    ) -> None:
        """Connect to nothing yet.

        Args:
            base_urls: One or more; `sessions.engine.address` says what is understood.
            timeout_s: How long an engine may stand still while its reply is awaited.
            connect_timeout_s: How long a connection may take.
        """
        self._timeout_s = timeout_s
        # Nothing of a piece is needed once it was handed on, so all connections share it.
        buffer = memoryview(bytearray(BUFFER_BYTES))
        addresses = [parse_address(url) for url in base_urls]
        # Reading the certificates costs 30 ms and some megabytes, so only if they are needed.
        tls = ssl.create_default_context() if any(a.is_tls for a in addresses) else None
        self._pools = [
            EnginePool(
                address,
                buffer=buffer,
                connect_timeout_s=connect_timeout_s,
                tls=tls if address.is_tls else None,
            )
            for address in addresses
        ]
        self._choice = EngineChoice(len(addresses))

    @property
    def in_use(self) -> list[int]:
        """Exchanges in flight, by engine."""
        return [pool.in_use for pool in self._pools]

    @property
    def idle_count(self) -> int:
        """Connections that idle, to all engines."""
        return sum(pool.idle_count for pool in self._pools)

    @property
    def affinity_count(self) -> int:
        """Sessions whose engine is remembered."""
        return len(self._choice)

    async def exchange(
        self, request: EngineRequest, open_sink: OpenSink | None = None
    ) -> EngineReply:
        """Send a request and read the whole reply; see `Engine`.

        Raises:
            RequestError: The request cannot be written as HTTP.
        """
        failures: dict[int, EngineUnreachableError] = {}
        is_fresh = False
        while (index := self._choice.choose(request.affinity, self.in_use, failures)) is not None:
            pool = self._pools[index]
            head = render_request_head(request, pool.address)
            reader = ReplyReader(is_head_request=request.method == "HEAD", open_sink=open_sink)
            is_reused = False
            pool.in_use += 1
            try:
                connection = await self._take(index, failures, is_fresh=is_fresh)
                if connection is None:
                    continue
                is_reused = connection.is_reused
                if await connection.exchange([head, request.body], reader, self._timeout_s):
                    pool.give_back(connection)
                return reader.reply()
            except (EngineUnreachableError, EngineTimeoutError, EngineReplyUnusableError) as error:
                is_unheard = is_reused and not reader.has_begun
                if not is_unheard or not isinstance(error, EngineUnreachableError):
                    _log_failure(pool, error)
                    raise
                is_fresh = True
            finally:
                pool.in_use -= 1
        raise list(failures.values())[-1]

    def forget(self, affinity: str) -> None:
        """A session ended: its engine need not be remembered."""
        self._choice.forget(affinity)

    async def close(self) -> None:
        """Close all connections; exchanges that still run fail."""
        for pool in self._pools:
            await pool.close()

    async def _take(
        self, index: int, failures: dict[int, EngineUnreachableError], *, is_fresh: bool
    ) -> EngineConnection | None:
        """A connection to an engine; None, and the failure noted, if it takes none."""
        pool = self._pools[index]
        try:
            connection = await pool.take(is_fresh=is_fresh)
        except EngineUnreachableError as error:
            _log_failure(pool, error)
            self._choice.mark_dead(index)
            failures[index] = error
            return None
        self._choice.mark_alive(index)
        return connection


def _log_failure(pool: EnginePool, error: ClientVisibleError) -> None:
    cause = error.__cause__
    reason = f"{error.message} ({cause!r})" if cause is not None else error.message
    _log.warning("engine failed engine=%s reason=%s", pool.address.authority, reason)
