"""Open files: as many as the kernel allows, and enough of them (lending rule 15).

Spec: docs/settings.md#sessions_max_connections
"""

from __future__ import annotations

import resource
from typing import Final

from sessions.errors.unseen import SettingsError
from sessions.settings import Settings

# Of a member: standard streams, loop, listeners, logs, lock, channel. Counted on a live router
# (17) and doubled, and 64 refused connections on their way out; each shard adds its channel and its
# pidfd to the router.
_RESERVE: Final = 96
_PER_SHARD: Final = 2


def raise_descriptor_limit(settings: Settings) -> int:
    """Raise the soft limit of open files to the hard one, for this process and its children.

    Args:
        settings: For the number of connections and shards.

    Returns:
        The limit that now holds.

    Raises:
        SettingsError: It is too low for SESSIONS_MAX_CONNECTIONS; the limit is raised all the
            same.
    """
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    room = hard - _RESERVE - _PER_SHARD * settings.shards
    if hard != resource.RLIM_INFINITY and settings.max_connections > room:
        raise SettingsError(
            f"SESSIONS_MAX_CONNECTIONS={settings.max_connections} does not fit into "
            f"{hard} open files (RLIMIT_NOFILE): set it to {max(room, 1)} or raise the limit"
        )
    return hard
