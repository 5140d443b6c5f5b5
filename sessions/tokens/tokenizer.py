"""What a tokenizer is, and how a setting becomes one.

A setting is `pkg:<name>` (ranks that ship in a Python package), a `tokenizer.json`, or a folder
that holds one. A process loads one tokenizer at its start and keeps it.

Must not know how the implementations work.

Spec: docs/sessions.md#tokenizers
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final, Protocol

from sessions.errors.unseen import SettingsError
from sessions.tokens.heap import return_freed_memory
from sessions.tokens.huggingface import HuggingFaceTokenizer
from sessions.tokens.packaged import read_packaged

PACKAGE_PREFIX: Final = "pkg:"
TOKENIZER_FILE: Final = "tokenizer.json"


class Tokenizer(Protocol):
    """Text to token ids and back; immutable, so threads may share one."""

    @property
    def vocab_size(self) -> int:
        """Upper bound of the ids: every token's id is in 0 to this - 1."""
        ...

    @property
    def special_ids(self) -> Mapping[str, int]:
        """Text to id of the tokens that are matched whole before text is split."""
        ...

    def encode(self, text: str) -> list[int]:
        """Encode a text.

        Args:
            text: Any str; a lone surrogate counts as U+FFFD.

        Returns:
            Token ids. Special tokens in the text become their ids. Nothing is added.
        """
        ...

    def decode(self, ids: Sequence[int]) -> str:
        """Decode ids.

        Args:
            ids: Any integers; one without a token gives no text.

        Returns:
            The text, special tokens kept. Bytes that are no UTF-8 (an id sequence may end within
            a character) become U+FFFD.
        """
        ...


def load_tokenizer(name: str) -> Tokenizer:
    """Load the tokenizer that a setting names.

    Args:
        name: `pkg:<name>`, or a path of a `tokenizer.json` or of a folder with one.

    Returns:
        The tokenizer. Loading takes under a second and blocks.

    Raises:
        SettingsError: There is no such tokenizer or it is damaged; one line that says why.
    """
    try:
        tokenizer = _load(name)
    except ValueError as error:
        reason = " ".join(str(error).split())
        raise SettingsError(f"tokenizer {name!r} cannot be loaded: {reason}") from error
    return_freed_memory()
    return tokenizer


def _load(name: str) -> Tokenizer:
    if name.startswith(PACKAGE_PREFIX):
        return read_packaged(name.removeprefix(PACKAGE_PREFIX))
    path = Path(name)
    if path.is_dir():
        path /= TOKENIZER_FILE
    if not path.is_file():
        raise ValueError(f"no file {path}")
    return HuggingFaceTokenizer(path)
