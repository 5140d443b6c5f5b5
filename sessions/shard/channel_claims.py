"""The claims of a shard behind a router: requests and answers over its channel.

The table is the router's. A claim is a message with a number, and its answer has the same: when it
comes, every later request finds the claim. Whoever is cancelled while waiting holds nothing: what
is granted too late is given up again. What the router has reserved for this shard is claimed
without waiting, as in a lone shard: nobody else can have it. What is held is known here too, so
that a request whose body names a session can be told from one for another shard (lending rule 14).

Spec: docs/lending.md#claims
"""

from __future__ import annotations

import asyncio
import itertools
import logging
from collections import Counter

from sessions.errors.episodes import DuplicateClaimError
from sessions.errors.unseen import LocalProtocolError
from sessions.lending.channel import Channel
from sessions.lending.messages import Claimed, Kind, Message

logger = logging.getLogger(__name__)


class ChannelClaims:
    """Takes and releases claims of this shard; see the module docstring."""

    def __init__(self) -> None:
        self._held: set[bytes] = set()
        self._reserved: Counter[bytes] = Counter()
        # By their numbers; nobody waits for the answer about what was reserved.
        self._requests: dict[int, tuple[bytes, asyncio.Future[bool] | None]] = {}
        self._numbers = itertools.count(1)
        self._channel: Channel | None = None

    def attach(self, channel: Channel) -> None:
        """Ask over this channel from now on; the shard has said HELLO there."""
        self._channel = channel

    async def claim(self, key: bytes) -> None:
        """Take a claim; from the return on every request finds it.

        Args:
            key: 16 bytes, made by `claim_key`.

        Raises:
            DuplicateClaimError: Somebody holds it, this shard included; it stays held.
            LocalProtocolError: The application has not started yet.
        """
        if key in self._held:
            raise _duplicate()
        if key in self._reserved:
            self._held.add(key)
            self._ask(key, None)
            return
        answer: asyncio.Future[bool] = asyncio.get_running_loop().create_future()
        self._ask(key, answer)
        try:
            is_granted = await answer
        except asyncio.CancelledError:
            # The answer came in the same turn; after a refusal an episode of ours may hold it.
            if not answer.cancelled() and answer.result():
                self.release(key)
            raise
        if not is_granted:
            raise _duplicate()

    def release(self, key: bytes) -> None:
        """Give up a claim; what this shard does not hold is ignored."""
        if key in self._held:
            self._held.discard(key)
            self._give_up(key)

    def end(self, key: bytes) -> None:
        """Keep the claim of what is over, for what comes too late."""
        if key in self._held and self._channel is not None:
            self._channel.send(Message(Kind.END_CLAIM, 0, 0, 0, 0, key))

    def holds(self, key: bytes) -> bool:
        """Whether this shard has the claim."""
        return key in self._held

    def reserve(self, key: bytes) -> None:
        """The router keeps a key for this shard, once more: a request that names it is here."""
        self._reserved[key] += 1

    def unreserve(self, key: bytes) -> None:
        """Take one `reserve` back."""
        self._reserved[key] -= 1
        if not self._reserved[key]:
            del self._reserved[key]

    def on_claimed(self, message: Message) -> None:
        """The router answered.

        Raises:
            LocalProtocolError: Nobody asked.
        """
        try:
            key, answer = self._requests.pop(message.generation)
        except KeyError:
            raise LocalProtocolError(f"answer {message.generation} to no claim") from None
        is_granted = message.argument == Claimed.GRANTED
        if answer is None:
            if not is_granted:
                logger.error("what was reserved here is held by shard=%d", message.slot)
        elif not answer.cancelled():
            if is_granted:
                self._held.add(key)
            answer.set_result(is_granted)
        elif is_granted:
            self._give_up(key)

    def _ask(self, key: bytes, answer: asyncio.Future[bool] | None) -> None:
        if self._channel is None:
            raise LocalProtocolError("a claim before the shard serves")
        number = next(self._numbers)
        self._requests[number] = key, answer
        self._channel.send(Message(Kind.CLAIM, 0, 0, 0, number, key))

    def _give_up(self, key: bytes) -> None:
        if self._channel is not None:
            self._channel.send(Message(Kind.UNCLAIM, 0, 0, 0, 0, key))


def _duplicate() -> DuplicateClaimError:
    return DuplicateClaimError("this attempt of the rollout is running on this server")
