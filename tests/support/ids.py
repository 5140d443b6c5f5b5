"""Session ids by owner, for tests that must hit a certain shard.

Spec: docs/routing.md#ids
"""

from __future__ import annotations

import itertools

from sessions.routing.ids import owner_of


def ids_of_shard(shard: int, shards: int, count: int = 1) -> list[str]:
    """The first ids `t0`, `t1` … that this shard owns."""
    owned = (f"t{n}" for n in itertools.count() if owner_of(f"t{n}", shards) == shard)
    return list(itertools.islice(owned, count))
