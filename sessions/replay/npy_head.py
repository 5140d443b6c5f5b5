"""How many first characters of a blob may change from turn to turn while its rows do not.

vLLM's blobs are base64 of an `.npy` file, whose header names the shape and so changes with every
turn. Its characters are kept apart, up to the next multiple of 4, so that rows before and after
stand at the same places and share. Other blobs have no such head.

Spec: docs/replay.md#sharing
"""

from __future__ import annotations

import base64
import binascii
from typing import Final

MAGIC: Final = b"k05VTVBZ"  # base64 of the magic, "\x93NUMPY"
ENOUGH_CHARS: Final = 16  # base64 of 12 bytes: magic, version, length of the header
# A longer header is none of a blob's (a guess; numpy's is 128 bytes); its rows share nothing.
LIMIT_CHARS: Final = 4096

_SHORT_BYTES: Final = 10
_LONG_BYTES: Final = 12


def inline_head_chars(start: bytes) -> int | None:
    """The length of a blob's changing head.

    Args:
        start: First characters of the blob.

    Returns:
        Characters, a multiple of 4, or 0 if the blob has no such head; None if `start` is too
        short to know.
    """
    if not start.startswith(MAGIC[: len(start)]):
        return 0
    if len(start) < ENOUGH_CHARS:
        return None
    try:
        raw = base64.b64decode(start[:ENOUGH_CHARS], validate=True)
    except binascii.Error:
        return 0
    if len(raw) < _LONG_BYTES:
        return 0
    if raw[6] == 1:  # version 1: two bytes of length, later ones: four
        size = _SHORT_BYTES + int.from_bytes(raw[8:_SHORT_BYTES], "little")
    else:
        size = _LONG_BYTES + int.from_bytes(raw[8:_LONG_BYTES], "little")
    chars = -(-size // 3) * 4
    return chars if chars <= LIMIT_CHARS else 0
