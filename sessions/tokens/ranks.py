"""A tokenizer of tiktoken ranks: byte pair encoding whose merge order is the token id.

A ranks file has one `<base64 of the token's bytes> <rank>` line for each token. With the split
pattern and the special tokens of the model it gives the same ids as the model's Hugging Face
tokenizer, at a third of the time to load and two thirds of the memory. Three things are done here
because tiktoken does not: text is brought to NFC between special tokens (never across them, a
combining character after `>` would eat the special token), a very long run of blanks is cut out
before the split pattern sees it (its look-ahead needs one stack entry for each blank and gives up
at a million), and ids without a token decode to nothing.

One instance may be used by several threads: nothing in it changes after the start.

Must not know where a ranks file comes from nor which model it serves.

Spec: docs/sessions.md#tokenizers
"""

from __future__ import annotations

import re
from binascii import a2b_base64
from collections.abc import Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import Final

import tiktoken
from tokenizers.normalizers import NFC

from sessions.tokens.unicode_text import without_lone_surrogates

# White_Space of Unicode without CR and LF: what `\s` means to the split pattern. Python's own
# `\s` also takes U+001C to U+001F, which are no blanks there.
_BLANK: Final = "[\t\v\f \x85\xa0\u1680\u2000-\u200a\u2028\u2029\u202f\u205f\u3000]"
# A tenth of the stack of the split pattern's engine.
_LONG_BLANKS_COUNT: Final = 100_000
_LONG_BLANKS: Final = re.compile(f"(?<!{_BLANK}){_BLANK}{{{_LONG_BLANKS_COUNT},}}+(?![\r\n])")


class RanksTokenizer:
    """Implements `sessions.tokens.tokenizer.Tokenizer` on tiktoken; see the module docstring."""

    def __init__(
        self, name: str, ranks: dict[bytes, int], pattern: str, special_ids: Mapping[str, int]
    ) -> None:
        """Build the encoder.

        Args:
            name: Shown in error messages only.
            ranks: Token bytes to id; emptied, because the encoder has its own copy.
            pattern: The regular expression that splits text into pieces, in Rust's dialect.
            special_ids: Special token text to id; with the ranks they fill 0 to the size - 1.

        Raises:
            ValueError: The ids have a hole or a duplicate, or the pattern is not valid.
        """
        self._vocab_size = len(ranks) + len(special_ids)
        self._special_ids = MappingProxyType(dict(special_ids))
        self._encoding = tiktoken.Encoding(
            name,
            pat_str=pattern,
            mergeable_ranks=ranks,
            special_tokens=dict(special_ids),
        )
        if set(ranks.values()) | set(special_ids.values()) != set(range(self._vocab_size)):
            raise ValueError(f"the ids of {name} do not fill 0 to {self._vocab_size - 1}")
        ranks.clear()
        longest_first = sorted(special_ids, key=len, reverse=True)
        # A pattern of no alternatives would match everywhere, this one nowhere.
        self._special = re.compile(f"({'|'.join(map(re.escape, longest_first)) or '(?!)'})")
        self._nfc = NFC()

    @property
    def vocab_size(self) -> int:
        """Ids from 0 to this - 1 have a token."""
        return self._vocab_size

    @property
    def special_ids(self) -> Mapping[str, int]:
        """Text to id of all tokens that are added to the ranks."""
        return self._special_ids

    def encode(self, text: str) -> list[int]:
        """Token ids of a text; special tokens in it become their ids, nothing is added."""
        found: list[int] = []
        for index, segment in enumerate(self._special.split(without_lone_surrogates(text))):
            if index % 2:
                found.append(self._special_ids[segment])
            elif segment:
                plain = segment if segment.isascii() else self._nfc.normalize_str(segment)
                found += self._encode_plain(plain)
        return found

    def decode(self, ids: Sequence[int]) -> str:
        """Text of ids, special tokens kept; bytes that are no UTF-8 become U+FFFD."""
        known = [token for token in ids if 0 <= token < self._vocab_size]
        return self._encoding.decode(known, errors="replace")

    def _encode_plain(self, text: str) -> list[int]:
        if len(text) < _LONG_BLANKS_COUNT:
            return self._encoding.encode_ordinary(text)
        found: list[int] = []
        done = 0
        for start, end in _long_blanks(text):
            found += self._encoding.encode_ordinary(text[done:start])
            # The public way to encode runs the split pattern, which cannot take this piece.
            found += self._encoding._encode_single_piece(text[start:end])  # noqa: SLF001
            done = end
        return found + self._encoding.encode_ordinary(text[done:])


def _long_blanks(text: str) -> Iterator[tuple[int, int]]:
    """Start and end of the pieces of a text that are long runs of blanks.

    The split pattern makes one piece of a run that no line break follows, without its last blank
    if text follows: that one belongs to the next piece.
    """
    for match in _LONG_BLANKS.finditer(text):
        start, end = match.span()
        yield start, end if end == len(text) else end - 1


def parse_ranks(data: bytes) -> dict[bytes, int]:
    """Token bytes to rank, of a ranks file.

    Raises:
        ValueError: A line is not `<base64> <rank>`.
    """
    found: dict[bytes, int] = {}
    for line in data.splitlines():
        token, _, rank = line.partition(b" ")
        found[a2b_base64(token)] = int(rank)
    return found
