"""Claim keys: what stands for a claimed session in the table of claims and on the channels.

The texts that name sessions have no longest length and may hold anything, so a claim is known by a
hash of fixed size. The kind's name goes into it: two kinds may use the same text.

Spec: docs/routing.md#claims
"""

from __future__ import annotations

from hashlib import blake2b
from typing import Final

CLAIM_KEY_BYTES: Final = 16  # two of a billion claims are the same by a chance of 1e-21


def claim_key(kind_name: str, key_text: str) -> bytes:
    """The key of a claim.

    Args:
        kind_name: Of the session's kind.
        key_text: What names the session within its kind; any text, lone surrogates included.

    Returns:
        `CLAIM_KEY_BYTES` bytes, the same in every process.
    """
    text = f"{len(kind_name)}:{kind_name}{key_text}"  # the length: else "ab" "c" is "a" "bc"
    digest = blake2b(text.encode(errors="surrogatepass"), digest_size=CLAIM_KEY_BYTES)
    return digest.digest()
