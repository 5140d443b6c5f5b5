"""A tool environment for what the counter cannot show: slow and huge calls, every way to the end.

It counts as `CounterEnvironment` does and has more tools. `POST /run` takes `ending`, how the
episode goes wrong. A route of its own, `/mirror/…`, tells what arrived there and sends replies that
HTTP allows and that are easily damaged.

Spec: docs/architecture.md#tests
"""

from __future__ import annotations

import asyncio
import gzip
import logging
from collections.abc import Callable
from typing import Any, Final
from urllib.parse import parse_qs

from starlette.applications import Starlette
from starlette.routing import Route
from starlette.types import Receive, Scope, Send

from examples.agent_client import agent_url_of, order_of
from examples.counter_env import Counter, CounterEnvironment
from sessions.tools.episode import Episode

_log: Final = logging.getLogger(__name__)
Headers = list[tuple[bytes, bytes]]

SHARD_HEADER: Final = "x-shard"
ZIPPED: Final = gzip.compress(b"zipped" * 100, mtime=0)
REPLIES: Final[dict[str, tuple[int, Headers, bytes]]] = {
    "cookies": (200, [(b"set-cookie", b"a=1; Path=/"), (b"set-cookie", b"b=2; HttpOnly")], b"c"),
    "zipped": (203, [(b"content-encoding", b"gzip")], ZIPPED),
    "nothing": (204, [], b""),
    "same": (304, [(b"etag", b'"e"')], b""),
    "large": (200, [], bytes(range(256)) * (1 << 14)),
}


class Trial(Counter):
    """The state of one episode; more tools than the counter has."""

    def __init__(self, shard: int, name: str) -> None:
        """Nothing has begun."""
        super().__init__(shard)
        self._name = name
        self._began = self._cancelled = 0

    async def wait(self) -> None:
        """Wait for ever."""
        self._began += 1
        _log.warning("wait began episode=%s number=%s", self._name, self._began)
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            self._cancelled += 1
            raise

    def waits(self) -> dict[str, int]:
        """Tell how many waits began, and how many of them were cancelled."""
        return {"began": self._began, "cancelled": self._cancelled}

    def blob(self, size_bytes: int) -> str:
        """Give a text."""
        return "b" * size_bytes

    @property
    def tools(self) -> list[Callable[..., Any]]:
        """All of them."""
        return [self.add, self.total, self.wait, self.waits, self.blob]


class TrialEnvironment(CounterEnvironment):
    """See the module docstring."""

    async def run(self, request: dict[str, Any], episode: Episode) -> dict[str, Any]:
        """Let the agent play; then end as the request says."""
        ending = request.get("ending", "")
        agent_url = agent_url_of(request)
        trial = Trial(self.context.shard_index, episode.id.key)
        episode.on_cleanup(lambda: _log.warning("cleaned episode=%s", episode.id.key))
        if ending == "stuck clean-up":
            episode.on_cleanup(asyncio.Event().wait)
        async with self.serve_tools(episode, trial.tools) as grants:
            order = order_of(episode, grants)
            limit_s = 0.3 if ending == "times out" else None
            async with asyncio.timeout(limit_s):
                await self._agents.play(agent_url, order)
            if ending == "raises":
                raise RuntimeError("as the test asked")
        return {"total": trial.count, "calls": [call.to_json() for call in episode.calls]}

    def app(self) -> Starlette:
        """The environment's application, with a route of its own."""
        app = super().app()
        app.router.routes.append(Route("/mirror/{rest:path}", Mirror(self.context.shard_index)))
        return app


class Mirror:
    """Answers with what the application was told: request line, headers, the body's bytes.

    `?reply=` sends one of `REPLIES` instead, or, with `pieces`, a reply whose second piece is sent
    when a request with `?reply=release` has come.
    """

    def __init__(self, shard: int) -> None:
        """Have nothing to release."""
        self._shard = shard
        self._is_released = asyncio.Event()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request."""
        body, has_more = b"", True
        while has_more:
            message = await receive()
            body += message.get("body", b"")
            has_more = message.get("more_body", False)
        wanted = parse_qs(scope["query_string"].decode()).get("reply", [""])[0]
        if wanted == "release":
            self._is_released.set()
        if wanted == "pieces":
            await self._start(send, 200, [])
            await send({"type": "http.response.body", "body": b"first", "more_body": True})
            await self._is_released.wait()
            await send({"type": "http.response.body", "body": b"second"})
            return
        status, headers, content = REPLIES.get(wanted) or (200, [], told_of(scope, body))
        await self._start(send, status, headers)
        await send({"type": "http.response.body", "body": content})

    async def _start(self, send: Send, status: int, headers: Headers) -> None:
        headers = [*headers, (SHARD_HEADER.encode(), b"%d" % self._shard)]
        await send({"type": "http.response.start", "status": status, "headers": headers})


def told_of(scope: Scope, body: bytes) -> bytes:
    """What an application was told of a request, line by line, then its body."""
    target = scope["raw_path"]
    if scope["query_string"]:
        target += b"?" + scope["query_string"]
    lines = [scope["method"].encode() + b" " + target]
    lines += [name + b": " + value for name, value in scope["headers"]]
    return b"".join(line + b"\n" for line in [*lines, b""]) + body
