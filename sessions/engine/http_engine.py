"""The engine over HTTP/1.1, with httpx.

One pool for all sessions of the process, without a limit of its own: an engine queues better than
we do. Connections that idle are dropped before the 5 s after which engines on uvicorn close them.
httpx's own defaults (user agent, proxies of the environment, cookie jar, redirects) are all off.

Must not know sessions or tokens.

Spec: docs/architecture.md#engine
"""

from __future__ import annotations

import logging
from dataclasses import replace
from typing import Final
from urllib.parse import urlsplit

import httpx

from sessions.engine.engine import EngineReply, EngineRequest, OpenSink
from sessions.errors import (
    ClientVisibleError,
    EngineReplyUnusableError,
    EngineTimeoutError,
    EngineUnreachableError,
    RequestError,
)

_log = logging.getLogger(__name__)

_KEEPALIVE_EXPIRY_S: Final = 4.0
_KEEPALIVE_CONNECTIONS: Final = 1024
_DECODED: Final = frozenset({"identity", "gzip", "deflate"})


class HttpEngine:
    """See the module docstring; implements `Engine`. `close` it in the end."""

    def __init__(self, base_url: str, *, timeout_s: float, connect_timeout_s: float) -> None:
        """Make the pool; nothing is connected yet.

        Args:
            base_url: `http(s)://host[:port][/prefix]`; a `/v1` at its end is not doubled.
            timeout_s: How long the engine may stand still while its reply is awaited.
            connect_timeout_s: How long a connection may take.
        """
        parts = urlsplit(base_url)
        origin = f"{parts.scheme}://{parts.netloc}"
        self._name = parts.netloc.rpartition("@")[2]
        self._prefix = parts.path.rstrip("/").removesuffix("/v1").encode()
        self._base = httpx.URL(origin)
        limits = httpx.Limits(
            max_connections=None,
            max_keepalive_connections=_KEEPALIVE_CONNECTIONS,
            keepalive_expiry=_KEEPALIVE_EXPIRY_S,
        )
        # The transport alone: a client would add headers, a cookie jar and environment proxies.
        # Certificates are read only if they are needed: they cost 30 ms and some megabytes.
        self._transport = httpx.AsyncHTTPTransport(verify=parts.scheme == "https", limits=limits)
        self._timeout = httpx.Timeout(timeout_s, connect=connect_timeout_s).as_dict()

    async def exchange(
        self, request: EngineRequest, open_sink: OpenSink | None = None
    ) -> EngineReply:
        """Send a request and read the whole reply; see `Engine`.

        Raises:
            RequestError: The target makes no URL.
        """
        try:
            collected = await self._exchange(request)
        except httpx.InvalidURL as error:
            raise RequestError(f"the engine cannot be asked for this path: {error}") from error
        except (httpx.TransportError, httpx.DecodingError) as error:
            reason = f"{type(error).__name__}: {error}".removesuffix(": ")
            _log.warning("engine failed engine=%s reason=%s", self._name, reason)
            raise _error_of(error, reason) from error
        sink = open_sink(collected.status, collected.headers) if open_sink is not None else None
        if sink is None:
            return collected
        if collected.body and not sink.feed(memoryview(collected.body)):
            await sink.wait_room()
        return replace(collected, body=b"", is_sunk=True)

    async def _exchange(self, request: EngineRequest) -> EngineReply:
        message = httpx.Request(
            request.method,
            self._base.copy_with(raw_path=self._prefix + request.target),
            headers=list(request.headers),
            content=request.body,
            extensions={"timeout": self._timeout},
        )
        reply = await self._transport.handle_async_request(message)
        try:
            body = await reply.aread()
        finally:
            await reply.aclose()
        headers = [(name.lower(), value) for name, value in reply.headers.raw]
        coding = reply.headers.get("content-encoding", "identity").lower()
        if coding not in _DECODED:
            raise EngineReplyUnusableError(
                f"the engine's reply has the content coding {coding!r}, which nobody asked for"
            )
        return EngineReply(status=reply.status_code, headers=headers, body=body)

    async def close(self) -> None:
        """Close all connections."""
        await self._transport.aclose()


def _error_of(error: httpx.TransportError | httpx.DecodingError, reason: str) -> ClientVisibleError:
    if isinstance(error, httpx.DecodingError):
        return EngineReplyUnusableError(f"the engine's reply cannot be decoded: {reason}")
    if isinstance(error, httpx.ConnectTimeout):
        return EngineUnreachableError("the engine did not accept a connection in time")
    if isinstance(error, httpx.TimeoutException):
        return EngineTimeoutError("the engine did not answer in time")
    return EngineUnreachableError(f"the engine cannot be reached, or broke off: {reason}")
