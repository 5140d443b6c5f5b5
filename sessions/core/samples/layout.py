"""A safetensors blob as a header and a row of tensors, the header known before any row is read.

The format: eight bytes with the length of the header, the header (a JSON object: name to type,
shape, and the range of its bytes after the header), the tensors without gaps. Header and tensors
are laid out so that every tensor is aligned to its type.

Must not know what tensors hold.

Spec: docs/samples.md#reply
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final

from sessions.core.texts.json_text import JsonObject, render_json
from sessions.replay.splice import Part

TYPE_BYTES: Final = {"I64": 8, "F64": 8, "I32": 4, "U8": 1}
_LENGTH_BYTES: Final = 8  # also what the header is padded to


@dataclass(frozen=True, slots=True, kw_only=True)
class Tensor:
    """One tensor.

    Attributes:
        name: Its name; no two of a blob are equal.
        type: One of `TYPE_BYTES`.
        dimensions: Its shape.
        parts: Its bytes, little-endian and in C order; some of them may have to be read.
    """

    name: str
    type: str
    dimensions: tuple[int, ...]
    parts: tuple[Part, ...]

    @property
    def size_bytes(self) -> int:
        """How many bytes the parts are in all."""
        return math.prod(self.dimensions) * TYPE_BYTES[self.type]


def in_order(tensors: Iterable[Tensor]) -> list[Tensor]:
    """Tensors in the order in which all of them are aligned: the widest types first."""
    return sorted(tensors, key=lambda tensor: -TYPE_BYTES[tensor.type])


def parts_of(tensors: Sequence[Tensor]) -> list[Part]:
    """The whole blob.

    Args:
        tensors: In the order in which they follow.
    """
    return [render_header(tensors), *(part for tensor in tensors for part in tensor.parts)]


def render_header(tensors: Sequence[Tensor]) -> bytes:
    """Everything before the first tensor.

    Args:
        tensors: In the order in which they follow.
    """
    header: JsonObject = {}
    at = 0
    for tensor in tensors:
        end = at + tensor.size_bytes
        header[tensor.name] = {
            "dtype": tensor.type,
            "shape": list(tensor.dimensions),
            "data_offsets": [at, end],
        }
        at = end
    text = render_json(header)
    text += b" " * (-len(text) % _LENGTH_BYTES)
    return len(text).to_bytes(_LENGTH_BYTES, "little") + text
