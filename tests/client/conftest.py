"""The client under test in both forms, with one way to call either."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any, Protocol

import anyio.to_thread
import httpx
import pytest

from sessions.client.async_client import AsyncSessionClient
from sessions.client.calls import TIMEOUT_S
from sessions.client.sync_client import SessionClient
from tests.support.apps import App
from tests.support.fake_server import URL, BlockingAsgiTransport, FakeServer


class Ask(Protocol):
    """Calls a method of the client by its name, whichever form the client has."""

    def __call__(self, method: str, *args: object, **kwargs: object) -> Awaitable[Any]: ...


MakeClient = Callable[..., Ask]


@pytest.fixture
def server() -> FakeServer:
    return FakeServer()


@pytest.fixture(params=["sync", "async"])
async def make_client(request: pytest.FixtureRequest) -> AsyncIterator[MakeClient]:
    """Makes clients of one form; each test that uses it runs once per form."""
    made: list[SessionClient | AsyncSessionClient] = []

    def make(url: str, app: App | None = None, *, timeout_s: float = TIMEOUT_S) -> Ask:
        client: SessionClient | AsyncSessionClient
        if request.param == "sync":
            transport = BlockingAsgiTransport(app) if app else None
            client = SessionClient(url, timeout_s=timeout_s, transport=transport)
        else:
            over = httpx.ASGITransport(app=app) if app else None
            client = AsyncSessionClient(url, timeout_s=timeout_s, transport=over)
        made.append(client)

        async def ask(method: str, *args: object, **kwargs: object) -> object:
            call = getattr(client, method)
            if request.param == "async":
                return await call(*args, **kwargs)
            return await anyio.to_thread.run_sync(lambda: call(*args, **kwargs))

        return ask

    yield make
    for client in made:
        if isinstance(client, AsyncSessionClient):
            await client.close()
        else:
            client.close()


@pytest.fixture
def ask(make_client: MakeClient, server: FakeServer) -> Ask:
    return make_client(URL, server.app)
