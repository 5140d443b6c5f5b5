"""Session ids: their grammar, their owner, and new ones.

An id is 1 to 128 unreserved characters. Its owner is a hash of the id modulo the number of shards,
so router and shards agree without asking each other; a shard mints ids until one is its own. The
hash is BLAKE2b, never `hash()`, which differs from process to process.

Spec: docs/routing.md#ids
"""

from __future__ import annotations

import re
import secrets
from functools import lru_cache
from hashlib import blake2b
from typing import Final
from urllib.parse import unquote

from sessions.errors.sessions import BadSessionIdError

ID_PATTERN: Final = r"[A-Za-z0-9._~-]{1,128}"
_OWNERS_KEPT: Final = 8192  # a session asks often; 2 MiB at the most
_matches_id: Final = re.compile(ID_PATTERN).fullmatch


def parse_session_id(raw: str) -> str:
    """Decode and check a session id as it stands in a path.

    Args:
        raw: One path segment, percent-encoded; decoded exactly once here.

    Returns:
        The id.

    Raises:
        BadSessionIdError: The decoded text is no id.
    """
    session_id = unquote(raw) if "%" in raw else raw
    if _matches_id(session_id) is None:
        raise BadSessionIdError(
            "a session id is 1 to 128 characters of A-Z a-z 0-9 . _ ~ -", param="session_id"
        )
    return session_id


@lru_cache(maxsize=_OWNERS_KEPT)
def owner_of(session_id: str, shards: int) -> int:
    """The index of the shard that owns an id, from 0 to `shards` - 1."""
    digest = blake2b(session_id.encode(), digest_size=8).digest()
    return int.from_bytes(digest, "big") % shards


def mint_session_id(shard: int, shards: int, prefix: str = "") -> str:
    """Make a new id that a shard owns.

    Args:
        shard: The owner to be, from 0 to `shards` - 1.
        shards: Shards of the group.
        prefix: Put before 32 random hex digits; at most 96 characters of the id grammar.

    Raises:
        ValueError: There is no such shard, or the prefix makes no id.
    """
    if not 0 <= shard < shards:
        raise ValueError(f"no shard {shard} among {shards}")
    if prefix and _matches_id(prefix + "0" * 32) is None:
        raise ValueError(f"prefix {prefix!r} makes no session id")
    while True:
        session_id = prefix + secrets.token_hex(16)
        if owner_of(session_id, shards) == shard:
            return session_id
