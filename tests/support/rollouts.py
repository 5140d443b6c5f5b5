"""The rollout application without a server: its lifespan, its state, a client on it.

Spec: docs/architecture.md#tests
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import httpx
from starlette.applications import Starlette
from starlette.types import Receive, Scope, Send

from sessions.core.open_sessions.registry import SessionRegistry
from sessions.core.session_core import SessionCore
from sessions.lending.board import Board
from sessions.lending.cells import Cells
from sessions.lending.group import Group
from sessions.replay.file_store import FileReplayStore
from sessions.routing.ids import mint_session_id
from sessions.settings import read_settings
from sessions.shard.rollouts import rollout_app
from sessions.tokens.prompts import PromptBuilder

SECRET: Final = b"a secret of a test run, 32 bytes"
CHAT: Final = "/v1/chat/completions"
ORIGIN: Final = "http://sessile.test:8000"


def group_of(settings: Mapping[str, str]) -> Group:
    """A group of one lone shard with these environment variables; nothing of it runs."""
    read = read_settings(settings)
    return Group(
        settings=read,
        board=Board(read.shards),
        cells=Cells(1),
        runtime_dir=Path(),
        run_secret=SECRET,
        instance_id="0" * 32,
    )


@asynccontextmanager
async def serve_state(app: Starlette) -> AsyncIterator[Any]:
    """Run an application's lifespan; gives an ASGI application with its state, as a server does."""
    async with app.router.lifespan_context(app) as state:
        yield _with_state(app, state)


def _with_state(app: Starlette, state: Mapping[str, Any] | None) -> Any:  # noqa: ANN401
    async def with_state(scope: Scope, receive: Receive, send: Send) -> None:
        await app({**scope, "state": dict(state or {})}, receive, send)

    return with_state


@dataclass(frozen=True, slots=True, kw_only=True)
class Rollouts:
    """The application while it runs, and what is inside.

    Attributes:
        asgi: The application, its state included.
        client: A client of it.
        core: Its core.
        replay: Its store.
        registry: Its sessions.
    """

    asgi: Any
    client: httpx.AsyncClient
    core: SessionCore
    replay: FileReplayStore
    registry: SessionRegistry

    @property
    def kept_bytes(self) -> tuple[int, int]:
        """(stored replay, held by replies in flight)."""
        return self.replay.stored_bytes, self.core.ingest.held_bytes


@asynccontextmanager
async def open_rollouts(
    prompts: PromptBuilder, engine_url: str = "sim:", **settings: str
) -> AsyncIterator[httpx.AsyncClient]:
    """A client of the rollout application on an engine; keywords are settings in lower case.

    The engine's own HTTP is real. A request that must look as if it came from elsewhere sets its
    own `Host`.
    """
    async with open_parts(prompts, engine_url, **settings) as opened:
        yield opened.client


@asynccontextmanager
async def open_parts(
    prompts: PromptBuilder, engine_url: str = "sim:", **settings: str
) -> AsyncIterator[Rollouts]:
    """As `open_rollouts`, with what is inside."""
    if not engine_url.startswith("sim:"):
        # A scripted engine: it is not asked what it is, and few replies repeat the prompt.
        settings = {"engine_dialect": "sglang", "prompt_echo": "optional", **settings}
    named = {f"SESSIONS_{name.upper()}": value for name, value in settings.items()}
    group = group_of(
        {"SESSIONS_ENGINE_URL": engine_url, "SESSIONS_TOKENIZER": "pkg:qwen3", **named}
    )
    registry = SessionRegistry(
        lambda: mint_session_id(0, 1, group.settings.id_prefix),
        tombstones=group.settings.tombstones,
    )
    app = rollout_app(group, registry, prompts)
    async with app.router.lifespan_context(app) as state:
        asgi = _with_state(app, state)
        transport = httpx.ASGITransport(asgi)
        async with httpx.AsyncClient(transport=transport, base_url=ORIGIN) as client:
            yield Rollouts(asgi=asgi, client=client, registry=registry, **(state or {}))


async def create(client: httpx.AsyncClient) -> dict[str, str]:
    """Open a session; what the server told of it."""
    response = await client.post("/sessions")
    assert response.status_code == 200
    created: dict[str, str] = response.json()
    return created


async def chat(
    client: httpx.AsyncClient, session: str, *messages: object, **fields: object
) -> httpx.Response:
    """One turn."""
    body = {"model": "sim", "messages": [user(m) for m in messages], **fields}
    return await client.post(f"/sessions/{session}{CHAT}", json=body)


def user(message: object) -> object:
    """A message; a str is the user's."""
    return {"role": "user", "content": message} if isinstance(message, str) else message


def message_of(response: httpx.Response) -> dict[str, Any]:
    """What the assistant said in a turn that worked."""
    assert response.status_code == 200, response.text
    found: dict[str, Any] = response.json()["choices"][0]["message"]
    return found


def error_of(response: httpx.Response, status: int) -> dict[str, Any]:
    """The error in a reply, which must have this status and the one shape."""
    assert response.status_code == status, response.text
    assert response.headers["content-type"] == "application/json"
    found = response.json()
    assert list(found) == ["error"]
    assert list(found["error"]) == ["message", "type", "param", "code"]
    error: dict[str, Any] = found["error"]
    return error


async def call(asgi: Any, method: str, path: str, **scope: Any) -> list[Any]:  # noqa: ANN401
    """An ASGI call with a bare scope; what it sent.

    Args:
        asgi: The application, its state included.
        method: Of the request.
        path: Of the request.
        scope: Further members of the scope; `messages` is instead what `receive` gives in turn;
            None to wait.
    """
    given = scope.pop("messages", [{"type": "http.request"}])
    messages = iter(given)
    sent: list[Any] = []

    async def send(message: Any) -> None:  # noqa: ANN401
        sent.append(message)

    async def receive() -> Any:  # noqa: ANN401
        message = next(messages)
        if message is None:  # a client that stays
            await asyncio.Event().wait()
        return message

    bare = _bare_scope(method, path)
    await asgi({**bare, **scope}, receive, send)
    return sent


async def ask(asgi: Any, method: str, path: str, body: bytes = b"") -> httpx.Response:  # noqa: ANN401
    """A request and its whole reply, much cheaper than over a client."""
    messages = [{"type": "http.request", "body": body}, *[None] * 9]
    path, _, query = path.partition("?")
    start, *pieces = await call(
        asgi, method, path, messages=messages, query_string=query.encode(), client=("::1", 1)
    )
    content = b"".join(bytes(piece["body"]) for piece in pieces)
    return httpx.Response(start["status"], headers=start["headers"], content=content)


def _bare_scope(method: str, path: str) -> dict[str, Any]:
    return {
        "type": "http",
        "method": method,
        "path": path,
        "raw_path": path.encode(),
        "scheme": "http",
        "query_string": b"",
        "headers": [],
        "root_path": "",
        "asgi": {"spec_version": "2.4"},
    }


def assert_exact_tokens(read: dict[str, Any]) -> None:
    """Check what is read of a linear session: each prompt begins with all tokens before it."""
    assert read["metadata"]["tito_session_mismatch"] == []
    tokens: list[int] = []
    for record in read["records"]:
        prompt = record["request"]["input_ids"]
        assert prompt[: len(tokens)] == tokens
        meta = record["response"]["choices"][0]["meta_info"]
        tokens = prompt + [entry[1] for entry in meta["output_token_logprobs"]]
    assert read["metadata"]["accumulated_token_ids"] == tokens
