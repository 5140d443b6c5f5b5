"""Roles: the coroutine of each kind of member.

The one place where the chassis names the router and the shards. Each is imported in the process
that plays it and in no other, so the router never loads what only a shard needs.

Spec: docs/architecture.md#processes
"""

from __future__ import annotations

import socket

from sessions.lending.group import Group, Life


class Roles:
    """The roles of the product; a subclass can replace one."""

    async def serve_router(self, group: Group, listeners: list[socket.socket], life: Life) -> None:
        """Be the router until told to stop."""
        from sessions.router.main import serve_router  # noqa: PLC0415 - the router's process only

        await serve_router(group, listeners, life)

    async def serve_shard(self, group: Group, index: int, life: Life) -> None:
        """Be a shard behind the router until told to stop."""
        from sessions.shard.main import serve_shard  # noqa: PLC0415 - a shard's process only

        await serve_shard(group, index, life)

    async def serve_lone_shard(
        self, group: Group, listeners: list[socket.socket], life: Life
    ) -> None:
        """Be the only shard, on the public listener, until told to stop."""
        from sessions.shard.main import serve_lone_shard  # noqa: PLC0415 - its process only

        await serve_lone_shard(group, listeners, life)
