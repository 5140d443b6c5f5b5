"""Serves the simulated engine over HTTP: embedded in a running loop, or alone in a process.

uvicorn's protocol does the HTTP; around it only what its server class cannot give: no signal
handlers, no log set-up, an end that waits for nobody, and each exchange's `Wire` in the scope so
that faults can break a reply below HTTP.

Must not know chats.

Spec: docs/sim.md#serving
"""

from __future__ import annotations

import asyncio
import logging
import signal
import socket
import struct
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from email.utils import formatdate
from functools import lru_cache
from typing import Any, Final

import uvloop
from starlette.types import ASGIApp
from uvicorn.config import Config
from uvicorn.protocols.http.flow_control import FlowControl
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol, RequestResponseCycle
from uvicorn.server import ServerState

from sessions.errors.unseen import SettingsError
from sessions.sim.app import sim_app
from sessions.sim.experts import Piece
from sessions.sim.faults import WIRE_EXTENSION, Headers
from sessions.sim.options import SimOptions, parse_sim_url
from sessions.tokens.tokenizer import Tokenizer, load_tokenizer

DEFAULT_TOKENIZER: Final = "pkg:qwen3"
_BACKLOG: Final = 1024
_END_DEADLINE_S: Final = 5.0
_LINGER_NONE: Final = struct.pack("ii", 1, 0)

_log = logging.getLogger("sessions.sim")


async def serve_sim(
    options: SimOptions,
    tokenizer: Tokenizer,
    sock: socket.socket,
    *,
    stop: asyncio.Event | None = None,
) -> None:
    """Serve until told to stop.

    Args:
        options: Of the engine.
        tokenizer: Shared, not copied.
        sock: A bound TCP or Unix stream socket; closed at the end.
        stop: Ends the serving when set; without it only cancellation does.

    Raises:
        SettingsError: The tokenizer has no ChatML stop token; the socket is closed.
        asyncio.CancelledError: Cancelled; all connections are ended first.
    """
    with sock:
        await _serve(_config_of(options, tokenizer), sock, stop or asyncio.Event())


@asynccontextmanager
async def simulated_engine(
    url: str, tokenizer: Tokenizer, around: Callable[[ASGIApp], ASGIApp] | None = None
) -> AsyncIterator[str]:
    """Run an engine in this loop on a free loopback port.

    Args:
        url: The URL form of its options, `sim:?...`.
        tokenizer: Shared, not copied.
        around: Wraps the application, for tests that hold requests back.

    Yields:
        The engine's base URL, `http://127.0.0.1:<port>`; it accepts connections already.

    Raises:
        SettingsError: The URL or the tokenizer is refused.
    """
    config = _config_of(parse_sim_url(url), tokenizer, around)
    stop = asyncio.Event()
    with _listening("127.0.0.1", 0) as sock:
        serving = asyncio.create_task(_serve(config, sock, stop))
        try:
            yield f"http://127.0.0.1:{sock.getsockname()[1]}"
        finally:
            stop.set()
            await serving


def run_sim(
    host: str,
    port: int,
    options: SimOptions,
    *,
    tokenizer: str = DEFAULT_TOKENIZER,
    announce: Callable[[str], None] | None = None,
) -> None:
    """Run an engine alone until SIGINT or SIGTERM; blocks.

    Args:
        host: Address to listen on.
        port: Port, or 0 for a free one.
        options: Of the engine.
        tokenizer: As `load_tokenizer` takes it.
        announce: Called with the base URL once connections are accepted.

    Raises:
        SettingsError: The tokenizer or the address is refused.
    """
    loaded = load_tokenizer(tokenizer)
    sock = _listening(host, port)
    name = f"[{host}]" if ":" in host else host
    url = f"http://{name}:{sock.getsockname()[1]}"
    uvloop.run(_serve_until_signal(options, loaded, sock, lambda: (announce or _announce)(url)))


def _announce(url: str) -> None:
    _log.info("simulated engine listens url=%s", url)


async def _serve_until_signal(
    options: SimOptions, tokenizer: Tokenizer, sock: socket.socket, on_ready: Callable[[], None]
) -> None:
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, stop.set)
    on_ready()
    await serve_sim(options, tokenizer, sock, stop=stop)


def _config_of(
    options: SimOptions,
    tokenizer: Tokenizer,
    around: Callable[[ASGIApp], ASGIApp] | None = None,
) -> Config:
    app: ASGIApp = sim_app(options, tokenizer)
    config = Config(
        app if around is None else around(app),
        loop="none",
        ws="none",
        lifespan="off",
        interface="asgi3",
        log_config=None,
        proxy_headers=False,
        timeout_keep_alive=options.keep_alive_s,
    )
    config.load()
    return config


async def _serve(config: Config, sock: socket.socket, stop: asyncio.Event) -> None:
    state = _State()
    server = await asyncio.get_running_loop().create_server(
        lambda: _SimProtocol(config, state, {}), sock=sock, backlog=_BACKLOG
    )
    try:
        await stop.wait()
    finally:
        server.close()
        await _end_all(state)


def _listening(host: str, port: int) -> socket.socket:
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    try:
        sock = socket.create_server((host, port), family=family, backlog=_BACKLOG)
    except OSError as error:
        raise SettingsError(f"cannot listen on {host} port {port}: {error}") from error
    sock.settimeout(0)
    return sock


async def _end_all(state: _State) -> None:
    """End all connections at once; their requests see a client that is gone, and end too."""
    if state.connections:
        state.all_lost.clear()
        for connection in list(state.connections):
            connection.transport.abort()
        await state.all_lost.wait()
    if state.tasks:
        await asyncio.wait(state.tasks, timeout=_END_DEADLINE_S)


@lru_cache(maxsize=1)
def _standard_headers(unix_s: int) -> list[tuple[bytes, bytes]]:
    return [(b"date", formatdate(unix_s, usegmt=True).encode()), (b"server", b"sim")]


class _State(ServerState):
    """uvicorn's state of a server, which can also say that no connection is left."""

    def __init__(self) -> None:
        super().__init__()
        self.all_lost = asyncio.Event()


class _SimProtocol(HttpToolsProtocol):
    """uvicorn's protocol with the exchange's wire in the scope."""

    def __init__(self, config: Config, state: _State, app_state: dict[str, Any]) -> None:
        super().__init__(config, state, app_state)
        self._state = state
        # Not through the config: that would switch off the access log of the whole process.
        self.access_log = False

    def connection_lost(self, exc: Exception | None) -> None:
        super().connection_lost(exc)
        if not self.connections:
            self._state.all_lost.set()

    def on_headers_complete(self) -> None:
        self.server_state.default_headers = _standard_headers(int(time.time()))
        super().on_headers_complete()
        wire = _ConnectionWire(self.transport, self.flow, self.cycle)
        # ASGI lets extensions hold anything; uvicorn's type knows dicts only.
        self.scope["extensions"] = {WIRE_EXTENSION: wire}  # type: ignore[dict-item]


class _ConnectionWire:
    """`faults.Wire` on uvicorn's transport."""

    def __init__(
        self, transport: asyncio.Transport, flow: FlowControl, cycle: RequestResponseCycle
    ) -> None:
        self._transport = transport
        self._flow = flow
        self._cycle = cycle

    @property
    def standard_headers(self) -> Headers:
        headers = self._cycle.default_headers
        return [(name.decode("latin-1"), value.decode("latin-1")) for name, value in headers]

    def drop_standard_headers(self) -> None:
        self._cycle.default_headers = []

    async def write(self, data: Piece) -> None:
        await self._flow.drain()
        if not self._transport.is_closing():
            self._transport.write(data)
        await asyncio.sleep(0)

    def close(self) -> None:
        self._transport.close()

    def reset(self) -> None:
        raw: socket.socket = self._transport.get_extra_info("socket")
        raw.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _LINGER_NONE)
        self._transport.abort()
