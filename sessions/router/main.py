"""The life of the router: accept at once, wait for the shards, lend, end with them.

The router answers 503 until every shard said HELLO, and with it which kinds of sessions there are:
all must say the same. A shard is dead when its pidfd is readable;
every death is final, so the router speaks its last words and ends. Told to stop, it drains: the
shards go last, when it closes their channels.

Spec: docs/architecture.md#router
"""

from __future__ import annotations

import asyncio
import logging
import os
import socket
import struct
from typing import Final

from sessions.errors.unseen import LocalProtocolError
from sessions.lending.channel import Channel
from sessions.lending.front import Front
from sessions.lending.group import Group, Life
from sessions.lending.messages import Kind, Message
from sessions.lending.ready import write_ready
from sessions.lending.unix_listener import listen_unix
from sessions.lending.waiting import wait_set
from sessions.router.dispatch import Dispatch
from sessions.router.judgement import judge_and_go_on
from sessions.router.last_words import speak_last_words
from sessions.router.shards import ShardLink
from sessions.router.stuck_shards import answer_for_stuck_shards
from sessions.routing.kind_text import kinds_of_text
from sessions.routing.kinds import Ownership, SessionKind

logger = logging.getLogger(__name__)

_BEAT_S: Final = 1.0
_BOOT_GRACE_S: Final = 2.0  # a shard that hangs in its boot ends by its own watchdog first
_CREDENTIALS: Final = struct.Struct("3i")  # pid, uid, gid of SO_PEERCRED
_DIED: Final = 70


async def serve_router(group: Group, listeners: list[socket.socket], life: Life) -> None:
    """Accept on the public listener and lend every exchange to its owner, until told to stop.

    Args:
        group: The shared state.
        listeners: Bound and listening; they are closed when draining begins.
        life: The worker process.
    """
    router = _Router(group, listeners, life)
    await router.run()


class _Router:
    """Holds what the callbacks of one router share."""

    def __init__(self, group: Group, listeners: list[socket.socket], life: Life) -> None:
        self._group = group
        self._listeners = listeners
        self._life = life
        self._loop = asyncio.get_running_loop()
        self._dispatch = Dispatch(group.settings.shards, is_leaving=lambda: group.board.draining)
        self._front = Front(group, self._dispatch)
        self._death: asyncio.Task[None] | None = None
        self._strangers: set[Channel] = set()  # their shards have not said HELLO
        self._channel_listener: socket.socket

    async def run(self) -> None:
        self._channel_listener = listen_unix(self._group.channel_path, socket.SOCK_SEQPACKET)
        self._loop.add_reader(self._channel_listener.fileno(), self._on_channel)
        self._life.watch_idle(lambda: not self._dispatch.lent_count)
        await self._front.start(self._listeners)
        beats = asyncio.create_task(self._beat())
        overdue = asyncio.create_task(
            answer_for_stuck_shards(self._group, self._life, self._front, self._dispatch)
        )
        limit_s = self._group.settings.boot_deadline_s + _BOOT_GRACE_S
        boot = self._loop.call_later(limit_s, self._on_boot_deadline)
        await self._life.stop_requested.wait()
        boot.cancel()
        await wait_set(self._life.hurry_requested, self._group.settings.drain_delay_s)
        self._dispatch.close()
        await self._front.drain(lambda: self._dispatch.lent_count)
        if self._death is not None:
            await self._death
        self._loop.remove_reader(self._channel_listener.fileno())
        self._channel_listener.close()
        for stranger in self._strangers:
            stranger.close()
        for link in self._dispatch.links.values():
            self._loop.remove_reader(link.pidfd)
            os.close(link.pidfd)
            link.channel.close()
        overdue.cancel()
        beats.cancel()
        self._life.on_drained()

    async def _beat(self) -> None:
        board = self._group.board
        while True:
            self._life.beat(sessions=len(self._dispatch.claims))
            self._dispatch.refresh(lambda index: board.read_row(board.row_of_shard(index)))
            await asyncio.sleep(_BEAT_S)

    # --- shards come

    def _on_channel(self) -> None:
        try:
            sock, _ = self._channel_listener.accept()
        except BlockingIOError:
            return
        except OSError as error:  # no descriptor left: the shard waits in the backlog
            logger.warning("channel not accepted error=%s", error)
            return
        credentials = sock.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _CREDENTIALS.size)
        pid, uid, _gid = _CREDENTIALS.unpack(credentials)
        if uid != os.getuid():
            logger.warning("channel refused uid=%d pid=%d", uid, pid)
            sock.close()
            return
        self._strangers.add(_Greeting(self, sock, pid).channel)

    def on_hello(self, hello: Message, pid: int, channel: Channel) -> ShardLink:
        """A shard said who it is, and which kinds of sessions it has."""
        index = hello.slot
        kinds = kinds_of_text(hello.payload, self._group.run_secret)
        pidfd = os.pidfd_open(pid)
        link = ShardLink(index=index, pid=pid, pidfd=pidfd, channel=channel)
        try:
            self._dispatch.add(link)
        except LocalProtocolError:
            os.close(pidfd)
            raise
        self._strangers.discard(channel)
        self._loop.add_reader(pidfd, self._on_death, link)
        self._install(kinds, index)
        logger.info("shard connected shard=%d pid=%d", index, pid)
        if self._dispatch.is_ready:
            self._life.on_ready()
            write_ready(self._group, self._listeners)
        return link

    def _install(self, kinds: tuple[SessionKind, ...], index: int) -> None:
        """Name sessions by these kinds from now on."""
        if len(self._dispatch.links) > 1 and kinds != self._front.kinds:
            self._life.fail_boot(f"shard {index} has other kinds of sessions than another shard")
        self._front.kinds = kinds
        self._dispatch.counts_claims = any(kind.ownership is Ownership.CLAIM for kind in kinds)

    def on_lost_stranger(self, channel: Channel) -> None:
        """A channel ended before its HELLO."""
        self._strangers.discard(channel)
        channel.close()

    def on_message(self, link: ShardLink, message: Message) -> None:
        """A shard said something else."""
        self._dispatch.on_message(link, message)

    # --- shards die

    def _on_boot_deadline(self) -> None:
        if not self._dispatch.is_ready:
            missing = [
                str(index)
                for index in range(self._group.settings.shards)
                if index not in self._dispatch.links
            ]
            self._life.fail_boot(f"shard {', '.join(missing)} did not connect in time")

    def _on_death(self, link: ShardLink) -> None:
        self._loop.remove_reader(link.pidfd)
        if self._death is not None:
            return  # the group goes down already
        if self._may_go_on():
            link.channel.read_to_end()
            logger.error("shard died, the group goes on shard=%d pid=%d", link.index, link.pid)
            judge_and_go_on(link, self._front, self._group.cells, self._dispatch)
        else:
            self._death = asyncio.create_task(self._die(link))

    def _may_go_on(self) -> bool:
        return self._group.goes_on and self._dispatch.is_ready and self._dispatch.alive_count > 1

    async def _die(self, link: ShardLink) -> None:
        await speak_last_words(self._group, self._front, self._dispatch, link)
        logging.shutdown()
        os._exit(_DIED)


class _Greeting:
    """A channel whose shard is not known before its HELLO."""

    def __init__(self, router: _Router, sock: socket.socket, pid: int) -> None:
        self._router = router
        self._pid = pid
        self._link: ShardLink | None = None
        self.channel = Channel(asyncio.get_running_loop(), sock, self._on_message, self._on_end)

    def _on_message(self, message: Message, descriptor: int | None) -> None:
        del descriptor  # shards send none
        if self._link is not None:
            self._router.on_message(self._link, message)
        elif message.kind == Kind.HELLO:
            self._link = self._router.on_hello(message, self._pid, self.channel)
        else:
            raise LocalProtocolError(f"message of kind {message.kind} before HELLO")

    def _on_end(self) -> None:
        """Of a shard, the pidfd tells whether it is dead (lending rule 20)."""
        if self._link is None:
            self._router.on_lost_stranger(self.channel)
