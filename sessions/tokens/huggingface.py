"""A tokenizer of a Hugging Face `tokenizer.json`.

The file is all that counts: split rules, vocabulary, merges, added tokens. Post-processing (start
and end tokens) is never applied, because the chat template writes every token of a prompt.

One instance may be used by several threads: truncation and padding, the settings whose change
makes the library refuse a concurrent call ("Already borrowed"), are switched off once and never
touched again.

Must not know any model or where the file comes from.

Spec: docs/sessions.md#tokenizers
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from types import MappingProxyType

from tokenizers import Tokenizer

from sessions.tokens.unicode_text import without_lone_surrogates


class HuggingFaceTokenizer:
    """Implements `sessions.tokens.tokenizer.Tokenizer`; see the module docstring."""

    def __init__(self, path: Path) -> None:
        """Read a `tokenizer.json`.

        Args:
            path: The file.

        Raises:
            ValueError: The file cannot be read or is no tokenizer; the message says why.
        """
        try:
            # Not `from_file`: it raises a bare Exception.
            self._tokenizer = Tokenizer.from_buffer(path.read_bytes())
        except (OSError, ValueError) as error:
            raise ValueError(f"{path}: {error}") from error
        self._tokenizer.no_truncation()
        self._tokenizer.no_padding()
        added = self._tokenizer.get_added_tokens_decoder()
        self._special_ids = MappingProxyType(
            {token.content: number for number, token in sorted(added.items())}
        )
        largest = max(self._tokenizer.get_vocab(with_added_tokens=True).values(), default=-1)
        self._vocab_size = largest + 1

    @property
    def vocab_size(self) -> int:
        """Ids from 0 to this - 1 may have a token."""
        return self._vocab_size

    @property
    def special_ids(self) -> Mapping[str, int]:
        """Text to id of all added tokens, special in the library's sense or not."""
        return self._special_ids

    def encode(self, text: str) -> list[int]:
        """Token ids of a text; special tokens in it become their ids, nothing is added."""
        valid = without_lone_surrogates(text)
        return self._tokenizer.encode(valid, add_special_tokens=False).ids

    def decode(self, ids: Sequence[int]) -> str:
        """Text of ids, special tokens kept; bytes that are no UTF-8 become U+FFFD."""
        known = [token for token in ids if 0 <= token < self._vocab_size]
        return self._tokenizer.decode(known, skip_special_tokens=False)
