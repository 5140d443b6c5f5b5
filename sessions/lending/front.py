"""The front of a group: accepts connections, and holds what all of them share.

One front runs in the process that owns the public listener: in the router, or in a lone shard
that lends to itself. It gives each accepted connection a slot, sweeps deadlines, answers probes
from the board, and asks its dispatcher everything that differs between the two.

Spec: docs/lending.md#front
"""

from __future__ import annotations

import asyncio
import contextlib
import socket
import time
from collections.abc import Callable
from typing import Final, cast

from sessions.errors.client_visible import ClientVisibleError
from sessions.errors.group import OverloadedError
from sessions.lending.connection import LINGER_QUIET_S, Connection, Dispatcher
from sessions.lending.group import Group
from sessions.lending.place import Place
from sessions.lending.probes import ProbeReply, is_probe, probe_reply
from sessions.lending.slots import SlotTable
from sessions.lending.waiting import wait_until
from sessions.routing.kinds import ROLLOUT, Named, SessionKind
from sessions.routing.naming import name_of
from sessions.wire.head import Head
from sessions.wire.repeated import RepeatedHeads
from sessions.wire.replies import render_error

_SWEEP_S: Final = 0.25  # a deadline is kept to within this
_BACKLOG: Final = 2048
_MADE_S: Final = 0.1  # a turn of the loop takes microseconds
DRAIN_LINGER_S: Final = 0.3
REFUSED_LINGER_COUNT: Final = 64  # the reserve of open files in chassis/descriptors.py has room


class Front:
    """Connections, slots and limits of the process that accepts.

    Attributes:
        settings: The limits.
        slots: Free slot numbers.
        connections: All open ones.
        heads: Reads the heads of all of them.
        dispatcher: Who serves what is not answered here.
        kinds: Of the application's sessions; those of a session server until it has started.
        is_closing: Whether no further request is taken, on open connections neither.
    """

    def __init__(self, group: Group, dispatcher: Dispatcher) -> None:
        self.settings = group.settings
        self.slots = SlotTable(group.settings.max_connections)
        self.connections: set[Connection] = set()
        self.heads = RepeatedHeads()
        self.dispatcher = dispatcher
        self.kinds: tuple[SessionKind, ...] = (ROLLOUT,)
        self._group = group
        self._listeners: list[socket.socket] = []
        self._servers: list[asyncio.Server] = []
        self._refused: set[_Refused] = set()
        self._sweep: asyncio.TimerHandle | None = None
        self.is_closing = False
        self.now = time.monotonic

    async def start(self, listeners: list[socket.socket]) -> None:
        """Accept on the listeners."""
        loop = asyncio.get_running_loop()
        self._listeners = listeners
        for listener in listeners:
            server = await loop.create_server(self._protocol, sock=listener, backlog=_BACKLOG)
            self._servers.append(server)
        self._sweep = loop.call_later(_SWEEP_S, self._on_sweep)

    async def drain(self, lent_count: Callable[[], int]) -> None:
        """Stop to accept, wait until nothing is in flight, end all connections.

        A client that had no word of the end gets a moment to send what it was about to send, and
        its answer: a connection that is idle, or given back meanwhile, is ended after that. So is
        one that the kernel had connected by then, which a mere close of the listener would reset.

        Args:
            lent_count: Exchanges that shards still have.
        """
        self.is_closing = True
        await self._accept_waiting()
        for server in self._servers:
            server.close()
        for connection in list(self.connections):
            connection.hurry()
        await wait_until(lambda: not lent_count() and all(c.is_over for c in self.connections))
        # Clients get a moment to close first, so that no reset eats their last reply.
        await wait_until(self._is_empty, limit_s=DRAIN_LINGER_S)
        for connection in list(self.connections):
            connection.transport.abort()
        for refused in list(self._refused):
            refused.transport.abort()
        await wait_until(self._is_empty, limit_s=DRAIN_LINGER_S, poll_s=0)
        if self._sweep is not None:
            self._sweep.cancel()

    async def _accept_waiting(self) -> None:
        """Take the connections that wait for it, and see that all taken ones are there."""
        loop = asyncio.get_running_loop()
        for listener in self._listeners:
            for _ in range(_BACKLOG):
                try:
                    sock, _address = listener.accept()
                except OSError:  # none waits, or no descriptor is left
                    break
                sock.setblocking(False)  # noqa: FBT003 - positional only
                with contextlib.suppress(OSError):  # it is gone already
                    await loop.connect_accepted_socket(self._protocol, sock)
        # One that the loop accepted is made a turn or two later.
        await asyncio.sleep(0)
        await wait_until(
            lambda: self.slots.taken_count == len(self.connections), limit_s=_MADE_S, poll_s=0
        )

    def _is_empty(self) -> bool:
        return not self.connections and not self._refused

    def refuse_begun_heads(self, error: ClientVisibleError) -> None:
        """Answer every head that has begun and cannot be waited for any more."""
        for connection in list(self.connections):
            connection.refuse_begun_head(error)

    def answer_probe(self, head: Head) -> ProbeReply | None:
        """The answer of a probe, or None if the request is none."""
        if head.method not in (b"GET", b"HEAD") or not is_probe(head.path):
            return None
        return probe_reply(head.path, self._group)

    def choose(self, head: Head) -> Place:
        """Where a request must be served.

        Raises:
            ClientVisibleError: The request names its session wrongly, or nobody can serve it.
        """
        return self.dispatcher.choose(self.name_in(head))

    def name_in(self, head: Head) -> Named | None:
        """The session that a request names, or None.

        Raises:
            BadSessionIdError: What stands in a session's place is no id, or two different ones do.
        """
        return name_of(self.kinds, head.path.decode("latin-1"), head.values)

    def _protocol(self) -> asyncio.Protocol:
        if self.slots.has_free:
            return Connection(self, self.slots.take())
        deadline = self.now() + LINGER_QUIET_S
        return _Refused(self.settings.max_connections, self._refused, deadline)

    def _on_sweep(self) -> None:
        now = self.now()
        for connection in list(self.connections):
            if connection.deadline <= now:
                connection.on_deadline()
        for refused in list(self._refused):
            if refused.deadline <= now:
                refused.transport.abort()
        self._sweep = asyncio.get_running_loop().call_later(_SWEEP_S, self._on_sweep)


class _Refused(asyncio.Protocol):
    """A connection beyond the limit: told so, then ended in a way that no reset eats the words.

    It lingers as every ending does (lending rule 17), but without a slot; when many do already, it
    is closed at once.
    """

    transport: asyncio.Transport

    def __init__(self, limit: int, lingering: set[_Refused], deadline: float) -> None:
        """Refuse.

        Args:
            limit: The number of connections that is reached.
            lingering: All that linger; shared.
            deadline: Until when on the front's clock this one may.
        """
        self.deadline = deadline
        self._limit = limit
        self._lingering = lingering

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        error = OverloadedError(f"all {self._limit} connections are in use, try again later")
        self.transport = cast("asyncio.Transport", transport)  # uvloop's does not inherit from it
        self.transport.write(render_error(error, close=True))
        if len(self._lingering) >= REFUSED_LINGER_COUNT:
            self.transport.close()
            return
        try:
            self.transport.write_eof()
        except (OSError, RuntimeError):  # the client is gone already
            self.transport.abort()
            return
        self._lingering.add(self)

    def connection_lost(self, exc: Exception | None) -> None:
        del exc
        self._lingering.discard(self)
