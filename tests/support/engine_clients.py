"""Clients of scripted engines for tests, and requests for them.

Spec: docs/architecture.md#tests
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any, Final

import pytest

from sessions.engine.engine import EngineRequest
from sessions.engine.http_engines import HttpEngines
from sessions.errors.client_visible import ClientVisibleError
from tests.support.raw_engine import Answer, RawEngine, Then, answers_in_order, raw_engine

SILENCE: Final = Answer(b"", Then.STALL)


@asynccontextmanager
async def engine_at(
    *answers: Answer | bytes, prefix: str = "", **limits: float
) -> AsyncIterator[tuple[HttpEngines, RawEngine]]:
    """An engine that gives these answers in order, and a client of it."""
    async with raw_engine(answers_in_order(*answers)) as server:
        client = client_of(server, prefix=prefix, **limits)
        try:
            yield client, server
        finally:
            await client.close()


def client_of(*servers: RawEngine, prefix: str = "", **limits: float) -> HttpEngines:
    """A client of these engines; the caller closes it."""
    return HttpEngines(
        [f"http://127.0.0.1:{server.port}{prefix}" for server in servers],
        timeout_s=limits.get("timeout_s", 30),
        connect_timeout_s=limits.get("connect_timeout_s", 30),
    )


def request(target: bytes = b"/v1/x", *headers: tuple[bytes, bytes], **more: Any) -> EngineRequest:  # noqa: ANN401
    """A POST with a small body, unless told otherwise."""
    return EngineRequest(
        method=more.get("method", "POST"),
        target=target,
        headers=headers,
        body=more.get("body", b"body"),
        affinity=more.get("affinity", ""),
    )


async def error_of(exchange: Callable[[], Awaitable[Any]]) -> ClientVisibleError:
    """The error with which an exchange fails; fails the test if it does not."""
    with pytest.raises(ClientVisibleError) as caught:
        await exchange()
    return caught.value
