"""A router that serves in this process, and shards for it: played by the test, or processes.

Spec: docs/architecture.md#tests
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import socket
import subprocess
import sys
from collections.abc import Iterator, Sequence

from sessions.lending.group import Group
from sessions.lending.messages import Keep, Kind, Message, encode_whole
from sessions.router.main import serve_router
from sessions.routing.kind_text import kinds_to_text
from sessions.routing.kinds import ROLLOUT, SessionKind
from tests.support.channels import End
from tests.support.members import FakeLife
from tests.support.raw import AsyncRawConnection, open_raw
from tests.support.waiting import wait_until_async

SHARDS = 2
# A process that sends the bytes argv[2] on the channel argv[1], and then sleeps.
SHARD_PROCESS = """
import socket, sys, time
sock = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
sock.connect(sys.argv[1])
sock.send(bytes.fromhex(sys.argv[2]))
time.sleep(60)
"""


def hello_of(index: int, kinds: Sequence[SessionKind] = (ROLLOUT,)) -> Message:
    """What a shard says first."""
    return Message(Kind.HELLO, 0, index, 0, 0, kinds_to_text(kinds))


class Shard:
    """A shard in the hands of the test: it takes loans and gives them back."""

    def __init__(self, group: Group, index: int, kinds: Sequence[SessionKind] = (ROLLOUT,)) -> None:
        sock = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        sock.connect(str(group.channel_path))
        self.end = End(sock)
        self._returned: set[int] = set()
        self.end.channel.send(hello_of(index, kinds))

    async def loan(self, number: int = 0) -> tuple[Message, int | None]:
        """The LEND with this number, and its descriptor."""
        await wait_until_async(lambda: len(self.end.messages) > number, f"loan {number}")
        return self.end.messages[number], self.end.descriptors[number]

    def give_back(self, loan: Message, keep: Keep = Keep.KEPT) -> None:
        """Say that the exchange is over."""
        self._returned.add(id(loan))
        self.end.channel.send(Message(Kind.BACK, keep, loan.slot, 0, loan.generation, b""))

    def give_all_back(self) -> None:
        """Say that every exchange is over, and its connection, too."""
        for message in self.end.messages:
            if message.kind == Kind.LEND and id(message) not in self._returned:
                self.give_back(message, Keep.LOST)


class RouterStage:
    """A router that serves in this process."""

    def __init__(self, group: Group) -> None:
        self.group = group
        self.life = FakeLife(group, 0, os.getpid())
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.listener.setblocking(False)  # noqa: FBT003 - positional only
        self.serving = asyncio.create_task(serve_router(group, [self.listener], self.life))
        self.opened = contextlib.AsyncExitStack()
        self._shards: list[Shard] = []

    async def shard(self, index: int, kinds: Sequence[SessionKind] = (ROLLOUT,)) -> Shard:
        """A shard that connects."""
        await wait_until_async(self.group.channel_path.exists, "the channel's listener")
        shard = Shard(self.group, index, kinds)
        self._shards.append(shard)
        return shard

    async def shards(self) -> list[Shard]:
        """All of them; the router is ready."""
        found = [await self.shard(index) for index in range(SHARDS)]
        await wait_until_async(lambda: self.life.is_ready, "the router to be ready")
        return found

    async def client(self) -> AsyncRawConnection:
        """A client."""
        return await self.opened.enter_async_context(open_raw(self.listener.getsockname()))

    async def stop(self) -> None:
        """Tell it to stop, and close what was opened."""
        self.life.stop_requested.set()
        for shard in self._shards:
            shard.give_all_back()
        await self.opened.aclose()
        await self.serving
        for shard in self._shards:
            shard.end.close()
        self.listener.close()


@contextlib.contextmanager
def process_shard(group: Group, index: int) -> Iterator[subprocess.Popen[bytes]]:
    """A shard that is a process, and says nothing after its HELLO."""
    hello = encode_whole(hello_of(index)).hex()
    command = [sys.executable, "-S", "-c", SHARD_PROCESS, str(group.channel_path), hello]
    process = subprocess.Popen(command)
    try:
        yield process
    finally:
        process.kill()
        process.wait()
