"""A uvicorn server for one shard: the lifespan, the shard socket, and the state that exchanges use.

uvicorn's own signal handling is left out, since the worker process owns its signals. The server
listens on the shard's Unix socket only; lent connections come through `Loans` or `House`.

Spec: docs/architecture.md#shard
"""

from __future__ import annotations

import asyncio
import contextlib
import socket
from collections.abc import Coroutine, Generator
from pathlib import Path
from typing import Any, Final

import uvicorn
from starlette.types import ASGIApp

from sessions.errors.unseen import LifespanEndedError
from sessions.lending.unix_listener import listen_unix

_KEEP_ALIVE_S: Final = 75
_STOP_S: Final = 2


class ShardServer(uvicorn.Server):
    """Runs the application's lifespan and serves the shard socket."""

    def __init__(self, app: ASGIApp) -> None:
        """Configure uvicorn for the application."""
        config = uvicorn.Config(
            app,
            http="httptools",
            ws="none",
            lifespan="auto",
            log_config=None,
            proxy_headers=False,
            server_header=False,
            headers=[("server", "sessile")],
            timeout_keep_alive=_KEEP_ALIVE_S,
            timeout_graceful_shutdown=_STOP_S,
        )
        config.load()
        super().__init__(config)
        self._has_started = asyncio.Event()
        self._has_lifespan = False
        self._task: asyncio.Task[None] | None = None

    @property
    def app_state(self) -> dict[str, Any]:
        """What the application's lifespan left for its requests."""
        state: dict[str, Any] = self.lifespan.state
        return state

    async def start(self, path: Path) -> None:
        """Start the application and listen on the shard socket.

        Args:
            path: Of the socket; the group's lock makes a file in its place stale.

        Raises:
            SystemExit: The application's lifespan failed.
        """
        listener = listen_unix(path, socket.SOCK_STREAM)
        self._task = asyncio.create_task(self._serve([listener]))
        started = asyncio.create_task(self._has_started.wait())
        await asyncio.wait((self._task, started), return_when=asyncio.FIRST_COMPLETED)
        if self._task.done():
            started.cancel()
            await self._task

    async def outlive(self, event: Coroutine[Any, Any, object]) -> None:
        """Wait for something, and fall with the application.

        uvicorn would serve on without the lifespan, and what lives in it would be gone in silence.

        Args:
            event: What is waited for.

        Raises:
            LifespanEndedError: The lifespan ended first.
        """
        tasks = [asyncio.ensure_future(event)]
        if self._has_lifespan:
            tasks.append(asyncio.ensure_future(self.lifespan.shutdown_event.wait()))
        try:
            await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
            if not tasks[0].done():
                raise LifespanEndedError("the application's lifespan ended while it was serving")
        finally:
            for task in tasks:
                task.cancel()

    async def stop(self) -> None:
        """End the shard socket and the application's lifespan."""
        self.should_exit = True
        if self._task is not None:
            await self._task

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Start, then say so."""
        await super().startup(sockets)
        # Of an application that has none, it ended at once.
        self._has_lifespan = not self.lifespan.shutdown_event.is_set()
        self._has_started.set()

    @contextlib.contextmanager
    def capture_signals(self) -> Generator[None, None, None]:
        """The worker process owns its signals."""
        yield
