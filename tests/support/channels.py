"""A channel at one end of a real socket pair, and the other end in the hands of a test.

Spec: docs/architecture.md#tests
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import socket
from collections import deque
from collections.abc import AsyncIterator

from sessions.lending.channel import Channel
from sessions.lending.messages import MAX_BYTES, PAYLOAD_BYTES, Decoder, Kind, Message
from tests.support.loops import open_descriptors
from tests.support.waiting import wait_until_async


class End:
    """A channel and all that came out of it."""

    def __init__(self, sock: socket.socket) -> None:
        self.messages: list[Message] = []
        self.descriptors: list[int | None] = []
        self.ends = 0
        loop = asyncio.get_running_loop()
        self.channel = Channel(loop, sock, self._on_message, self._on_end)

    def _on_message(self, message: Message, descriptor: int | None) -> None:
        assert not self.ends
        self.messages.append(message)
        self.descriptors.append(descriptor)

    def _on_end(self) -> None:
        self.ends += 1

    def close(self) -> None:
        """Close the channel and all descriptors that came."""
        self.channel.close()
        for descriptor in self.descriptors:
            if descriptor is not None:
                os.close(descriptor)


class ScriptedSocket(socket.socket):
    """A real socket whose next sends or receives fail as scripted."""

    def __init__(self, real: socket.socket) -> None:
        super().__init__(fileno=real.detach())
        self.send_faults: deque[int] = deque()
        self.receive_faults: deque[int] = deque()
        self.sends = 0

    def send(self, *args: object) -> int:
        self._fail_as_scripted()
        return super().send(*args)  # type: ignore[arg-type]

    def sendmsg(self, *args: object) -> int:
        self._fail_as_scripted()
        return super().sendmsg(*args)  # type: ignore[arg-type]

    def recvmsg(self, *args: object) -> object:  # type: ignore[override]
        if self.receive_faults:
            fault = self.receive_faults.popleft()
            raise OSError(fault, os.strerror(fault))
        return super().recvmsg(*args)  # type: ignore[arg-type]

    def _fail_as_scripted(self) -> None:
        self.sends += 1
        if self.send_faults:
            fault = self.send_faults.popleft()
            raise OSError(fault, os.strerror(fault))


class Pair:
    """Our end, a channel, and the peer's socket, which the test reads and writes by hand."""

    def __init__(self) -> None:
        ours, self.peer = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self.peer.settimeout(0)
        self.sock = ScriptedSocket(ours)
        self.end = End(self.sock)
        self.peer_ends: list[End] = []
        self.channel = self.end.channel

    def close(self) -> None:
        """Close both ends and all descriptors that came."""
        self.end.close()
        for end in self.peer_ends:
            end.close()
        self.peer.close()

    def peer_end(self) -> End:
        """Give the peer's socket a channel of its own."""
        end = End(self.peer)
        self.peer_ends.append(end)
        return end

    def fill(self) -> int:
        """Send until the kernel takes no more; says how many messages that took."""
        count = 0
        while not self.channel._queue:
            self.channel.send(numbered(count, PAYLOAD_BYTES))
            count += 1
        return count

    def read_peer(self) -> list[Message]:
        """Everything that waits at the peer now."""
        decoder, found = Decoder(), []
        with contextlib.suppress(BlockingIOError):
            while datagram := self.peer.recv(MAX_BYTES):
                message = decoder.feed(datagram)
                if message is not None:
                    found.append(message)
        return found

    async def read_peer_until(self, count: int) -> list[Message]:
        """Read at the peer until so many messages came."""
        found: list[Message] = []

        def has_all() -> bool:
            found.extend(self.read_peer())
            return len(found) >= count

        await wait_until_async(has_all, f"{count} messages at the peer")
        return found


def numbered(number: int, size: int = 0) -> Message:
    """A message that is known by its number."""
    return Message(Kind.BACK, 1, number, 0, 1, bytes(size))


@contextlib.asynccontextmanager
async def open_pair() -> AsyncIterator[Pair]:
    """A pair; fails when a descriptor is left open at the end."""
    before = open_descriptors()
    pair = Pair()
    yield pair
    pair.close()
    assert open_descriptors() == before, "a descriptor is left open"
