"""Small tokenizers and templates for tests that need no model's vocabulary.

Spec: docs/architecture.md#tests
"""

from __future__ import annotations

from sessions.tokens.ranks import RanksTokenizer

CHATML = ("<|im_start|>", "<|im_end|>", "<think>", "</think>")


def byte_tokenizer(*specials: str) -> RanksTokenizer:
    """One token for each byte (id = byte), then the special tokens from 256 on."""
    ranks = {bytes([value]): value for value in range(256)}
    ids = {text: 256 + index for index, text in enumerate(specials)}
    return RanksTokenizer("bytes", ranks, r"[\s\S]", ids)
