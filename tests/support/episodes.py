"""Tool environments without a server: a context, an environment that a test steers, a request.

Spec: docs/architecture.md#tests
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from typing import Any, Final

import httpx
from starlette.types import Message

from sessions.tools.claims import LocalClaims
from sessions.tools.context import ToolContext
from sessions.tools.environment import ToolEnvironment
from sessions.tools.episode import Episode
from sessions.tools.grants import Grants
from tests.support.rollouts import SECRET, serve_state
from tests.support.waiting import wait_until_async

HEADER: Final = "X-NeMo-Gym-Episode-Token"
ORIGIN: Final = "http://sessile.test:8000"
WAIT_S: Final = 10.0


def context_of(**changes: Any) -> ToolContext:  # noqa: ANN401 - any field
    """The context of a lone shard; keywords replace fields."""
    context = ToolContext(
        claims=LocalClaims(),
        run_secret=SECRET,
        episode_header=HEADER,
        origin_of=lambda _scope: ORIGIN,
        shard_index=0,
        shards=1,
        max_episodes=8,
        cleanup_s=5.0,
    )
    return replace(context, **changes)


@dataclass
class Held:
    """An episode that waits until the test lets it end.

    Attributes:
        episode: As `run` was given it.
        grants: Of its tools.
        is_over: Set by the test to let it end.
        fault: Raised instead of a result, if the test puts one.
    """

    episode: Episode
    grants: Grants
    is_over: asyncio.Event = field(default_factory=asyncio.Event)
    fault: BaseException | None = None

    @property
    def headers(self) -> dict[str, str]:
        """What a call of its tools sends."""
        return dict(self.grants.direct_http.headers)


class HeldEnvironment(ToolEnvironment):
    """Episodes with two tools that last until the test ends them, by rollout id and attempt."""

    def __init__(self, context: ToolContext) -> None:
        super().__init__(context)
        self.held: dict[str, Held] = {}
        self.cleaned: list[str] = []
        self.ran: list[str] = []
        self.stuck = asyncio.Event()
        self.cancelled: list[str] = []

    async def run(self, request: dict[str, Any], episode: Episode) -> dict[str, Any]:
        """Serve `note` and `wait` until the test says so."""
        key = episode.id.key
        episode.on_cleanup(lambda: self.cleaned.append(key))

        def note(text: str) -> dict[str, str]:
            """Note a text."""
            self.ran.append(f"{key}: {text}")
            return {"noted": text}

        async def wait() -> None:
            """Wait for ever."""
            self.ran.append(f"{key}: wait")
            try:
                await self.stuck.wait()
            except asyncio.CancelledError:
                self.cancelled.append(key)
                raise

        async with self.serve_tools(episode, [note, wait]) as grants:
            held = self.held[key] = Held(episode, grants)
            await held.is_over.wait()
        if held.fault is not None:
            raise held.fault
        return {"calls": [call.to_json() for call in episode.calls], "request": request}


@dataclass(frozen=True, kw_only=True)
class Opened:
    """An environment whose lifespan runs.

    Attributes:
        environment: Itself.
        asgi: Its application, state included.
        client: A client of it.
    """

    environment: HeldEnvironment
    asgi: Any
    client: httpx.AsyncClient

    async def begin(self, rollout_id: str = "r", attempt: int = 0) -> tuple[Held, Run]:
        """Run an episode until its tools are served."""
        run = Run(self.asgi, {"rollout_id": rollout_id, "attempt": attempt})
        key = f"{rollout_id}-a{attempt}" if attempt else rollout_id
        self.environment.held.pop(key, None)
        await wait_for(lambda: key in self.environment.held or run.is_over)
        return self.environment.held[key], run

    async def call(
        self, headers: Mapping[str, str], name: str = "note", **arguments: object
    ) -> httpx.Response:
        """A direct call."""
        return await self.client.post(f"/tools/{name}", headers=dict(headers), json=arguments)


@asynccontextmanager
async def open_environment(context: ToolContext | None = None) -> AsyncIterator[Opened]:
    """An environment with its application and a client."""
    environment = HeldEnvironment(context or context_of())
    async with (
        serve_state(environment.app()) as asgi,
        httpx.AsyncClient(transport=httpx.ASGITransport(asgi), base_url=ORIGIN) as client,
    ):
        yield Opened(environment=environment, asgi=asgi, client=client)


class Run:
    """A POST whose client may leave."""

    def __init__(
        self,
        asgi: Any,  # noqa: ANN401 - an ASGI application
        body: object,
        path: str = "/run",
        headers: Mapping[str, str] | None = None,
    ) -> None:
        """Send it at once."""
        self._messages: asyncio.Queue[Message] = asyncio.Queue()
        self._messages.put_nowait({"type": "http.request", "body": json.dumps(body).encode()})
        self._sent: list[Message] = []
        given = (headers or {}).items()
        scope = {
            "type": "http",
            "method": "POST",
            "path": path,
            "raw_path": path.encode(),
            "scheme": "http",
            "query_string": b"",
            "headers": [(name.lower().encode(), value.encode()) for name, value in given],
            "root_path": "",
        }
        self.task = asyncio.create_task(asgi(scope, self._messages.get, self._send))

    @property
    def is_over(self) -> bool:
        """Whether the application returned."""
        return self.task.done()

    def leave(self) -> None:
        """The client closes its connection."""
        self._messages.put_nowait({"type": "http.disconnect"})

    async def reply(self) -> httpx.Response:
        """What it answered."""
        async with asyncio.timeout(WAIT_S):
            await asyncio.wait((self.task,))
        self.task.result()
        start, *pieces = self._sent
        content = b"".join(piece.get("body", b"") for piece in pieces)
        return httpx.Response(start["status"], headers=start["headers"], content=content)

    async def _send(self, message: Message) -> None:
        self._sent.append(message)


async def wait_for(condition: Callable[[], bool]) -> None:
    """Let the loop turn until something is so.

    Raises:
        DeadlineError: It was not in time.
    """
    await wait_until_async(condition, "what the test waits for")
