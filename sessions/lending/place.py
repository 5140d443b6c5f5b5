"""Where a request is served: what a dispatcher chose, and how the choice was made.

A dispatcher makes places and reads them when it lends; a connection only carries them from the one
to the other.

Spec: docs/lending.md#reserved-keys
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """The shard that serves a request, and why.

    Attributes:
        shard: Its index.
        key: Claim key that is reserved for the shard meanwhile, or b"".
        is_newcomer: The request names no session that anybody has.
        is_final: The shard must serve it: nobody else is asked (lending rule 14).
    """

    shard: int
    key: bytes = b""
    is_newcomer: bool = False
    is_final: bool = False
