"""Channels and connections that only remember, for tests of what the router decides.

Spec: docs/architecture.md#tests
"""

from __future__ import annotations

from typing import cast

from sessions.errors.client_visible import ClientVisibleError
from sessions.lending.channel import Channel
from sessions.lending.connection import Connection
from sessions.lending.messages import Message
from sessions.lending.slots import Slot, SlotEvent, SlotState
from sessions.router.shards import ShardLink
from sessions.wire.gate import read_head
from sessions.wire.head import Head
from tests.support.raw import request_bytes

NO_PIDFD = -1


class FakeChannel:
    """A channel whose sent messages stay here.

    Attributes:
        sent: (message, descriptor) of `send` and `send_soon`, in order.
        to_read: What `read_to_end` delivers, by calling `deliver`.
        unsent: What `undelivered` gives.
    """

    def __init__(self) -> None:
        self.sent: list[tuple[Message, int | None]] = []
        self.is_over_limit = False
        self.is_closed = False
        self.was_read = False
        self.to_read: list[Message] = []
        self.unsent: list[Message] = []
        self.deliver = self.to_read.append

    @property
    def messages(self) -> list[Message]:
        """What was sent."""
        return [message for message, _ in self.sent]

    def send(self, message: Message, descriptor: int | None = None) -> None:
        """Remember."""
        self.sent.append((message, descriptor))

    def send_soon(self, message: Message) -> None:
        """Remember."""
        self.sent.append((message, None))

    def read_pending(self) -> None:
        """Deliver what a live shard had sent."""
        while self.to_read:
            self.deliver(self.to_read.pop(0))

    def read_to_end(self) -> None:
        """Deliver what a dead shard had sent."""
        self.was_read = True
        for message in self.to_read:
            self.deliver(message)

    def undelivered(self) -> list[Message]:
        """What never left."""
        assert not self.is_closed
        return self.unsent

    def close(self) -> None:
        """Remember."""
        self.is_closed = True


class FakeConnection:
    """A connection with a real slot whose calls stay here, as (name, arguments …)."""

    def __init__(self, number: int = 0, generation: int = 0) -> None:
        self.slot = Slot(number, generation)
        self.descriptor = 1000 + number
        self.calls: list[tuple[object, ...]] = []
        self.refused: list[ClientVisibleError] = []

    @property
    def real(self) -> Connection:
        """Itself, for a caller that wants the real class."""
        return cast("Connection", self)

    @property
    def names(self) -> list[object]:
        """The names of the calls."""
        return [name for name, *_ in self.calls]

    def pause_reading(self) -> None:
        """Remember."""
        self.calls.append(("pause_reading",))

    def take_back(self, shard: int, leftover: bytes, *, kept: bool) -> None:
        """Remember, and move the slot as the real one does."""
        self.slot.take_back(shard, kept=kept)
        self.calls.append(("take_back", shard, leftover, kept))

    def answer_refused(self, error: ClientVisibleError, head: Head, payload: bytes) -> None:
        """Remember."""
        self.calls.append(("answer_refused", error, head, payload))

    def answer_dead(self, error: ClientVisibleError, head: Head) -> None:
        """Remember, and move the slot as the real one does."""
        self.slot.feed(SlotEvent.LAST_REPLY)
        self.calls.append(("answer_dead", error, head))

    def refuse_begun_head(self, error: ClientVisibleError) -> None:
        """Remember, apart from the calls: every connection is asked."""
        self.refused.append(error)

    def cut(self) -> None:
        """Remember."""
        assert self.slot.state is SlotState.ENDING
        self.calls.append(("cut",))

    def end(self) -> None:
        """Remember, and move the slot as the real one does."""
        self.slot.feed(SlotEvent.LAST_REPLY)
        self.calls.append(("end",))

    def go_on(self, unread: bytes) -> None:
        """Remember."""
        assert self.slot.state is SlotState.HEAD
        self.calls.append(("go_on", unread))


def link_of(
    index: int, channel: FakeChannel | None = None, *, pid: int = 0, pidfd: int = NO_PIDFD
) -> ShardLink:
    """A link over a fake channel."""
    found = cast("Channel", channel or FakeChannel())
    return ShardLink(index=index, pid=pid or 500 + index, pidfd=pidfd, channel=found)


def channel_of(link: ShardLink) -> FakeChannel:
    """The fake channel of a link."""
    return cast("FakeChannel", link.channel)


def head_of(method: str = "GET", target: str = "/", body: bytes = b"") -> Head:
    """A head as the gate reads it."""
    head = read_head(request_bytes(method, target, body=body), 0, 65536)
    assert head is not None
    return head
