"""One request and its reply, as uvicorn runs them, with our errors for applications that fail.

`Service` is what all exchanges of a process share. `scope_of` makes the ASGI scope out of a head
that the gate has read: the one that uvicorn would make of the same bytes, without a second parser.
`Cycle` is uvicorn's request-response cycle; an exception that nobody caught, and a reply that never
began, become a 500 in the one error shape instead of uvicorn's plain text. It writes the same reply
head, byte for byte, with less work: the lines that all replies have are made once a second.

Nothing here knows loans or bodies: the exchange hands body bytes in.

Spec: docs/lending.md#exchanges
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable
from typing import Any, Final
from urllib.parse import unquote

from httptools import parse_url
from starlette.types import ASGIApp
from uvicorn._types import ASGISendEvent
from uvicorn.protocols.http.flow_control import FlowControl
from uvicorn.protocols.http.httptools_impl import (
    HEADER_RE,
    HEADER_VALUE_RE,
    STATUS_LINE,
    RequestResponseCycle,
)
from uvicorn.server import ServerState

from sessions.errors.client_visible import InternalError
from sessions.shard.refusal import Refusal
from sessions.wire.head import Head

logger = logging.getLogger(__name__)
_server_logger = logging.getLogger("uvicorn.error")
_access_logger = logging.getLogger("uvicorn.access")
_NAMES_KEPT: Final = 256  # header names of an application; more are checked each time
Address = tuple[str, int | None] | None


class Service:
    """What all exchanges of a process share: the application, and uvicorn's state.

    Attributes:
        app: The application.
        state: Of the server; counts requests, holds tasks and default headers.
        connections: Of the server, those that serve a request.
        app_state: What the application's lifespan left for its requests.
        has_access_log: Whether somebody reads a line for every request.
    """

    def __init__(self, app: ASGIApp, state: ServerState, app_state: dict[str, Any]) -> None:
        self.app = app
        self.state = state
        self.connections: set[Any] = state.connections  # uvicorn names its own protocols only
        self.app_state = app_state
        self.has_access_log = _access_logger.hasHandlers()
        self._names: dict[bytes, bytes] = {}
        self._rendered: tuple[list[tuple[bytes, bytes]], bytes] = ([], b"")

    def default_lines(self) -> bytes:
        """The header lines that every reply begins with: `date` and `server`."""
        headers, lines = self._rendered
        if headers is not self.state.default_headers:  # uvicorn makes a new list every second
            headers = self.state.default_headers
            lines = b"".join([name.lower() + b": " + value + b"\r\n" for name, value in headers])
            self._rendered = headers, lines
        return lines

    def name_of(self, name: bytes) -> bytes:
        """A header name as it is sent.

        Raises:
            RuntimeError: It is none.
        """
        known = self._names.get(name)
        if known is None:
            if HEADER_RE.search(name):
                raise RuntimeError("Invalid HTTP header name.")
            known = name.lower()
            if len(self._names) < _NAMES_KEPT:
                self._names[name] = known
        return known


class _UnknownLength(int):
    """What uvicorn takes for the bytes that a reply may still have: any number, and none."""

    def __lt__(self, other: object) -> bool:
        return False

    def __ne__(self, other: object) -> bool:
        return False

    def __sub__(self, other: int) -> _UnknownLength:
        return self

    __hash__ = int.__hash__


class Cycle(RequestResponseCycle):
    """One request and its reply; see the module docstring."""

    def __init__(
        self,
        service: Service,
        head: Head,
        scope: dict[str, Any],
        transport: asyncio.Transport,
        flow: FlowControl,
        *,
        on_response: Callable[[], None],
    ) -> None:
        """Begin; `run` runs the application.

        Args:
            service: Of this process.
            head: Of the request.
            scope: Made of it.
            transport: Takes the reply.
            flow: Of the transport.
            on_response: Called when the reply is written.
        """
        self._service = service
        self._has_written = False  # a byte of the reply
        self._is_http10 = is_http10 = head.http_version == "1.0"
        super().__init__(
            scope,  # type: ignore[arg-type]  # uvicorn's TypedDict
            transport,
            flow,
            _server_logger,
            _access_logger,
            service.has_access_log,
            service.state.default_headers,
            asyncio.Event(),
            head.expects_continue and not is_http10,  # RFC 9110 section 10.1.1
            head.keep_alive,
            on_response,
        )
        self._expect_any_length()

    def _expect_any_length(self) -> None:
        """The reply has not said how long it is."""
        self.chunked_encoding = None
        self.expected_content_length = 0
        if self._is_http10:
            # No chunks (RFC 9112 section 6.1): what states no length ends with the connection.
            self.chunked_encoding = False
            self.expected_content_length = _UnknownLength()

    async def send(self, message: ASGISendEvent) -> None:
        """Do what uvicorn does; a reply's head is put together here."""
        if self.response_started or self.access_log or message["type"] != "http.response.start":
            await super().send(message)
            self._has_written |= self.response_started
            return
        if self.flow.write_paused and not self.disconnected:
            await self.flow.drain()
        if self.disconnected:
            return
        self.response_started = True
        self.waiting_for_100_continue = False
        self.transport.write(self._render_head(message["status"], message.get("headers", ())))
        self._has_written = True

    def _render_head(self, status: int, headers: Iterable[tuple[bytes, bytes]]) -> bytes:
        name_of = self._service.name_of
        content = [STATUS_LINE[status], self._service.default_lines()]
        says_close = False
        for name, value in headers:
            sent = name_of(name)
            if HEADER_VALUE_RE.search(value):
                raise RuntimeError("Invalid HTTP header value.")
            if sent == b"content-length" and self.chunked_encoding is None:
                self.expected_content_length = int(value.decode())
                self.chunked_encoding = False
            elif sent == b"transfer-encoding" and value.lower() == b"chunked":
                self.expected_content_length = 0
                self.chunked_encoding = True
            elif sent == b"connection" and _says_close(value):
                self.keep_alive = False
                says_close = True
            content += (sent, b": ", value, b"\r\n")
        if not self.keep_alive and not says_close:
            content.append(b"connection: close\r\n")
        if self.chunked_encoding is None and self._may_have_body(status):
            self.chunked_encoding = True
            content.append(b"transfer-encoding: chunked\r\n")
        content.append(b"\r\n")
        return b"".join(content)

    def _may_have_body(self, status: int) -> bool:
        return self.scope["method"] != "HEAD" and status not in (204, 304)

    async def run(self, app: ASGIApp, tasks: set[asyncio.Task[None]]) -> None:
        """Run the application once; it fails in no other way than by what its client gets.

        Args:
            app: Runs.
            tasks: Of the server; holds the one that runs this, until the end.
        """
        try:
            await self._run(app)
        except BaseException:
            # A task that is cancelled at the end of the graceful time, too, as in uvicorn.
            logger.exception("application failed path=%s", self.scope["path"])
            if self._has_written:
                self.transport.close()  # a reply in its middle is cut
            else:
                await self._answer_failure()
        finally:
            self.on_response = _do_nothing  # it holds the exchange
            tasks.discard(asyncio.current_task())

    async def _run(self, app: ASGIApp) -> None:
        await app(self.scope, self.receive, self.send)  # type: ignore[arg-type]  # TypedDicts
        if self.response_complete or self.disconnected:
            return
        if self._has_written:
            logger.error("application left its reply unfinished path=%s", self.scope["path"])
            self.transport.close()
            return
        logger.error("application sent no reply path=%s", self.scope["path"])
        await self._answer_failure()

    async def _answer_failure(self) -> None:
        # A head may have been begun that nobody can send, such as one with a bad header.
        self.response_started = False
        self._expect_any_length()
        error = InternalError("the server failed to serve this request; its log says why")
        await Refusal(error)(self.scope, self.receive, self.send)  # type: ignore[arg-type]


def scope_of(service: Service, head: Head, server: Address, client: Address) -> dict[str, Any]:
    """The ASGI scope of a request, as uvicorn makes it of the same bytes.

    Args:
        service: Of this process.
        head: Of the request; its list of headers becomes the scope's.
        server: Host and port, or the path of a Unix socket and None.
        client: Likewise.
    """
    path = head.path.decode("ascii")
    return {
        "type": "http",
        "asgi": {"version": "3.0", "spec_version": "2.3"},
        "http_version": head.http_version,
        "server": server,
        "client": client,
        "scheme": "http",
        "root_path": "",
        "headers": head.headers,
        "state": service.app_state.copy(),
        "method": head.method.decode("ascii"),
        "path": unquote(path) if "%" in path else path,
        "raw_path": head.path,
        "query_string": _query_of(head),
    }


def _query_of(head: Head) -> bytes:
    if len(head.target) == len(head.path):
        return b""
    if head.target.startswith(b"/"):
        return head.target[len(head.path) + 1 :]
    query: bytes | None = parse_url(head.target).query
    return query or b""


def _says_close(value: bytes) -> bool:
    return b"close" in [token.lower().strip() for token in value.split(b",")]


def _do_nothing() -> None:
    pass
