"""Who holds an episode's claim, as the shard that runs the episode sees it.

A claim makes every call of an episode reach the shard that took it. Behind a router the table is
the router's and a claim is a message and its answer; a lone shard asks nobody, and remembers only
so that the same attempt is refused while it runs.

Spec: docs/tools.md#claims
"""

from __future__ import annotations

from typing import Protocol

from sessions.errors.episodes import DuplicateClaimError


class Claims(Protocol):
    """Takes and releases claims of this shard."""

    async def claim(self, key: bytes) -> None:
        """Take a claim; from the return on every request finds it.

        A caller that is cancelled while it waits holds nothing.

        Args:
            key: 16 bytes, made by `claim_key`.

        Raises:
            DuplicateClaimError: Somebody holds it, this shard included; it stays held.
        """

    def release(self, key: bytes) -> None:
        """Give up a claim; only the shard that holds it can, anything else is ignored."""

    def end(self, key: bytes) -> None:
        """What is claimed is over, and counts no more; what is late still finds this shard."""


class LocalClaims:
    """The claims of a lone shard."""

    def __init__(self) -> None:
        self._held: set[bytes] = set()

    async def claim(self, key: bytes) -> None:
        """See `Claims.claim`."""
        if key in self._held:
            raise DuplicateClaimError("this attempt of the rollout is running on this server")
        self._held.add(key)

    def release(self, key: bytes) -> None:
        """See `Claims.release`."""
        self._held.discard(key)

    def end(self, key: bytes) -> None:
        """See `Claims.end`; nothing comes from elsewhere."""
