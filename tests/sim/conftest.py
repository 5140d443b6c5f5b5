"""Fixtures of these tests: the real tokenizer, and engines with and without a server."""

from collections.abc import AsyncIterator, Callable, Coroutine
from typing import Any

import httpx
import pytest

from sessions.sim.app import sim_app
from sessions.sim.options import parse_sim_url
from sessions.sim.server import simulated_engine
from sessions.tokens.tokenizer import Tokenizer, load_tokenizer

Chat = Callable[..., Coroutine[None, None, httpx.Response]]


@pytest.fixture(scope="session")
def tokenizer() -> Tokenizer:
    return load_tokenizer("pkg:qwen3")


@pytest.fixture
async def client(tokenizer: Tokenizer, request: pytest.FixtureRequest) -> AsyncIterator[Any]:
    """A client of the application without a server; `@pytest.mark.parametrize` may give a URL."""
    app = sim_app(parse_sim_url(getattr(request, "param", "sim:")), tokenizer)
    transport = httpx.ASGITransport(app)
    async with httpx.AsyncClient(transport=transport, base_url="http://sim") as made:
        yield made


@pytest.fixture
def chat(client: httpx.AsyncClient) -> Chat:
    """Posts a chat with one user message, and whatever fields are given."""

    async def post(**fields: object) -> httpx.Response:
        body = {"messages": [{"role": "user", "content": "hello"}], **fields}
        return await client.post("/v1/chat/completions", json=body)

    return post


@pytest.fixture
async def address(
    tokenizer: Tokenizer, request: pytest.FixtureRequest
) -> AsyncIterator[tuple[str, int]]:
    """Host and port of an engine with its own server, in the test's loop."""
    async with simulated_engine(getattr(request, "param", "sim:"), tokenizer) as url:
        host, _, port = url.removeprefix("http://").partition(":")
        yield host, int(port)
