"""A channel between the router and one shard: SOCK_SEQPACKET on an event loop.

Messages go out at once while the kernel takes them, else into a queue that is flushed when the
socket is writable again, or by a timer when the kernel is short of descriptors in flight or
memory, for which poll says writable (lending rule 15). The queue's size is known, so a sender
can refuse work while it is over its limit. Descriptors arrive close-on-exec.

It knows nothing of slots or generations: it carries messages.

Spec: docs/lending.md#channel
"""

from __future__ import annotations

import asyncio
import errno
import itertools
import logging
import os
import socket
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from sessions.errors.unseen import LocalProtocolError
from sessions.lending.messages import (
    MAX_BYTES,
    PAYLOAD_BYTES,
    Decoder,
    Kind,
    Message,
    encode,
    encode_whole,
    pack,
    packed_bytes,
    unpack,
)

logger = logging.getLogger(__name__)

QUEUE_LIMIT_BYTES: Final = 4 << 20  # a guess: 64 heads of the largest size
_RETRY_S: Final = 0.005
_MESSAGES_PER_WAKE: Final = 32  # so that one busy peer does not starve the loop
_PENDING_LIMIT: Final = 4096  # more than the kernel holds; a peer that goes on does not count
# Messages of one datagram. Measured on two cores, 32 connections: 8 save a tenth of the CPU of
# router and shards, 16 a twentieth more before two shards; 32, or packs that begin small and grow
# within a turn of the loop, are no clear gain.
PACK_LIMIT: Final = 16
_ANCILLARY_BYTES: Final = socket.CMSG_SPACE(4)
# Plain ints: `&` of the socket module's enum flags runs Python code.
_PACK: Final = int(Kind.PACK)
_CLOEXEC: Final = int(socket.MSG_CMSG_CLOEXEC)
_TRUNCATED: Final = int(socket.MSG_TRUNC)
_SHORT_OF_MEMORY: Final = frozenset({errno.ETOOMANYREFS, errno.ENOBUFS, errno.ENOMEM})
_PEER_GONE: Final = frozenset({errno.EPIPE, errno.ECONNRESET, errno.ENOTCONN})

OnMessage = Callable[[Message, int | None], None]


@dataclass(frozen=True, slots=True, kw_only=True)
class _Queued:
    """One datagram that waits, with a duplicate of its descriptor that is ours to close."""

    datagram: bytes
    descriptor: int | None
    begins: bool  # a message, rather than going on with one


class Channel:
    """Sends and receives messages over one connected SEQPACKET socket."""

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        sock: socket.socket,
        on_message: OnMessage,
        on_end: Callable[[], None],
    ) -> None:
        """Start reading.

        Args:
            loop: The loop whose thread calls everything here.
            sock: Connected; the channel owns it from now on.
            on_message: Called with each message and the descriptor that came with it, which the
                callee then owns, or None.
            on_end: Called once, when the peer closed or is gone.
        """
        sock.settimeout(0)
        self._loop = loop
        self._sock = sock
        self._on_message = on_message
        self._on_end = on_end
        self._decoder = Decoder()
        self._queue: deque[_Queued] = deque()
        self._queued_bytes = 0
        self._pack: list[bytes] = []
        self._pack_bytes = 0
        self._wants_writable = False
        self._retry: asyncio.TimerHandle | None = None
        self._peer_gone = False
        self._is_reading = False
        self._ended = False  # nothing is received any more
        self._closed = False
        loop.add_reader(sock.fileno(), self._on_readable)

    @property
    def is_over_limit(self) -> bool:
        """Whether the peer is so far behind that new exchanges must be refused."""
        return self._queued_bytes > QUEUE_LIMIT_BYTES

    def send(self, message: Message, descriptor: int | None = None) -> None:
        """Send a message, at once or when the kernel takes it; never blocks, never fails.

        What is sent after the end is kept as undelivered.

        Args:
            message: What to say.
            descriptor: Sent beside it; stays the caller's (a queued message holds a duplicate, or
                none when this process has no descriptor left: the peer then refuses, rule 13).
        """
        if self._closed:
            return  # nobody reads any more
        if self._pack:
            self._send_pack()  # in order
        datagrams = encode(message)
        if (
            not self._queue
            and len(datagrams) == 1
            and self._send_datagram(datagrams[0], descriptor)
        ):
            return
        for part in datagrams:
            is_last = part is datagrams[-1]
            copy = _duplicate_of(descriptor) if is_last and not self._ended else None
            self._enqueue(_Queued(datagram=part, descriptor=copy, begins=part is datagrams[0]))
        self._flush()

    def send_soon(self, message: Message) -> None:
        """Send a message when the loop turns, in one datagram with others of the same turn.

        A system call and a wake-up of the peer then serve many exchanges. What `send` sends never
        overtakes it.

        Args:
            message: What to say; no descriptor can go with it.
        """
        if self._closed:
            return
        if len(message.payload) > PAYLOAD_BYTES // 2:  # copying it would cost what it saves
            self.send(message)
            return
        datagram = encode_whole(message)
        size = packed_bytes(datagram)
        if len(self._pack) == PACK_LIMIT or self._pack_bytes + size > PAYLOAD_BYTES:
            self._send_pack()
        if not self._pack:
            self._loop.call_soon(self._send_pack)
        self._pack.append(datagram)
        self._pack_bytes += size

    def read_pending(self) -> None:
        """Deliver what the peer has sent by now, before it would be its turn.

        Does nothing while its messages are being delivered: they come in their order.
        """
        if not self._is_reading and not self._ended:
            self._on_readable(_PENDING_LIMIT)

    def read_to_end(self) -> None:
        """Deliver everything that the dead peer had sent, to the end of file (rule 20).

        A broken message ends it, too: what the peer meant by it is judged like its silence.
        """
        while not self._ended:
            try:
                has_more = self._receive()
            except LocalProtocolError:
                logger.exception("the channel's dead peer broke the protocol")
                has_more = False
            if not has_more:
                self._end()

    def undelivered(self) -> list[Message]:
        """Messages of which nothing left, oldest first; of use once the peer is dead (rule 20)."""
        self._send_pack()
        whole = itertools.dropwhile(lambda item: not item.begins, self._queue)
        decoder = Decoder()
        decoded = [decoder.feed(item.datagram) for item in whole]
        return [message for message in decoded if message is not None]

    def close(self) -> None:
        """Stop, forget the queue and close the socket; `on_end` is not called any more."""
        self._stop()
        self._ended = self._closed = True
        self._pack.clear()
        while self._queue:
            self._drop_first()
        self._sock.close()

    def _send_pack(self) -> None:
        datagrams, self._pack, self._pack_bytes = self._pack, [], 0
        if not datagrams:
            return
        datagram = datagrams[0] if len(datagrams) == 1 else pack(datagrams)
        if self._queue or not self._send_datagram(datagram, None):
            for each in datagrams:
                self._enqueue(_Queued(datagram=each, descriptor=None, begins=True))
            self._flush()

    def _drop_first(self) -> None:
        item = self._queue.popleft()
        self._queued_bytes -= len(item.datagram)
        if item.descriptor is not None:
            os.close(item.descriptor)

    def _enqueue(self, item: _Queued) -> None:
        self._queue.append(item)
        self._queued_bytes += len(item.datagram)

    def _send_datagram(self, datagram: bytes, descriptor: int | None) -> bool:
        if self._peer_gone:
            return False
        try:
            if descriptor is None:
                self._sock.send(datagram)
            else:
                socket.send_fds(self._sock, [datagram], [descriptor])
        except BlockingIOError:
            self._wait_writable()
            return False
        except OSError as error:
            if error.errno in _SHORT_OF_MEMORY:
                self._retry_later()
            elif error.errno in _PEER_GONE:
                self._peer_gone = True
            else:
                raise
            return False
        return True

    def _wait_writable(self) -> None:
        if not self._wants_writable:
            self._wants_writable = True
            self._loop.add_writer(self._sock.fileno(), self._flush)

    def _retry_later(self) -> None:
        if self._retry is None:
            self._retry = self._loop.call_later(_RETRY_S, self._on_retry)

    def _on_retry(self) -> None:
        self._retry = None
        self._flush()

    def _flush(self) -> None:
        while self._queue:
            item = self._queue[0]
            if not self._send_datagram(item.datagram, item.descriptor):
                return
            self._drop_first()
        if self._wants_writable:
            self._wants_writable = False
            self._loop.remove_writer(self._sock.fileno())

    def _on_readable(self, limit: int = _MESSAGES_PER_WAKE) -> None:
        left = limit
        self._is_reading = True
        try:
            while left > 0 and not self._ended:
                count = self._receive()
                if not count:
                    return
                left -= count
        except LocalProtocolError:
            # Nothing that comes later can be trusted: without its channel a shard ends, and with
            # it the group (lending rule 7).
            logger.exception("the channel's peer broke the protocol")
            self.close()
            self._on_end()
        finally:
            self._is_reading = False

    def _receive(self) -> int:
        """Take one datagram; how many messages and parts came with it, 0 when none is there now."""
        try:
            datagram, ancillary, flags, _ = self._sock.recvmsg(
                MAX_BYTES, _ANCILLARY_BYTES, _CLOEXEC
            )
        except BlockingIOError:
            return 0
        except ConnectionResetError:
            # Queued datagrams may still follow the reset (seen): go on reading.
            self._peer_gone = True
            return 1
        if not datagram:
            self._end()
            return 0
        if flags & _TRUNCATED:
            raise LocalProtocolError("truncated channel message")
        descriptor = _descriptor_in(ancillary) if ancillary else None
        message = self._decoder.feed(datagram)
        if message is None:
            return 1
        if message.kind == _PACK:
            return self._deliver_pack(message.payload)
        self._on_message(message, descriptor)
        return 1

    def _deliver_pack(self, payload: bytes) -> int:
        datagrams = unpack(payload)
        for datagram in datagrams:
            message = self._decoder.feed(datagram)
            if message is not None and not self._ended:
                self._on_message(message, None)
        return len(datagrams)

    def _end(self) -> None:
        if not self._ended:
            self._stop()
            self._peer_gone = self._ended = True
            self._on_end()

    def _stop(self) -> None:
        if self._ended:
            return
        self._loop.remove_reader(self._sock.fileno())
        if self._wants_writable:
            self._wants_writable = False
            self._loop.remove_writer(self._sock.fileno())
        if self._retry is not None:
            self._retry.cancel()
            self._retry = None


def _duplicate_of(descriptor: int | None) -> int | None:
    if descriptor is None:
        return None
    try:
        return os.dup(descriptor)
    except OSError as error:
        logger.warning("no descriptor left for a queued loan error=%s", error)
        return None


def _descriptor_in(ancillary: list[tuple[int, int, bytes]]) -> int | None:
    for level, kind, data in ancillary:
        if (level, kind) == (socket.SOL_SOCKET, socket.SCM_RIGHTS) and len(data) >= 4:  # noqa: PLR2004 - one int
            return int.from_bytes(data[:4], "little")
    return None
