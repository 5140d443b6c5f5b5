"""The body of a request for samples.

Spec: docs/samples.md#request
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final

from sessions.core.texts.json_text import Json, JsonObject
from sessions.core.texts.object_body import parse_object_body
from sessions.errors.client_visible import RequestError

NESTING_LIMIT: Final = 64
_NESTS: Final = (dict, list, tuple)


@dataclass(frozen=True, slots=True, kw_only=True)
class SamplesRequest:
    """What a client wants.

    Attributes:
        max_seq_len: The most tokens that a sample may have, 1 or more; None for no limit.
        metadata: What the client knows of the session; for the hooks.
    """

    max_seq_len: int | None = None
    metadata: JsonObject = field(default_factory=dict)


def parse_samples_request(raw: bytes) -> SamplesRequest:
    """Parse and check the body of a request for samples.

    Args:
        raw: Empty, or JSON whatever its content type says.

    Raises:
        RequestError: Not JSON, not an object, a member that is not what it must be, or one that
            would be overlooked; `param` names it.
    """
    if not raw.strip():
        return SamplesRequest()
    body = parse_object_body(raw)
    limit = body.pop("max_seq_len", None)
    if limit is not None and (type(limit) is not int or limit < 1):
        raise RequestError(
            "max_seq_len must be a whole number from 1 up, or null", param="max_seq_len"
        )
    metadata = body.pop("metadata", None)
    if metadata is None:
        metadata = {}
    if not isinstance(metadata, dict) or not is_shallow(metadata):
        raise RequestError(
            f"metadata must be an object, nested by {NESTING_LIMIT} levels at most",
            param="metadata",
        )
    for name, value in body.items():
        if value is not None:
            raise RequestError(
                f"{name} is unknown here: only max_seq_len and metadata are", param=name
            )
    return SamplesRequest(max_seq_len=limit, metadata=metadata)


def is_shallow(value: Json, levels: int = NESTING_LIMIT) -> bool:
    """Whether a value is nested so little that it can be copied and written anywhere.

    Args:
        value: JSON.
        levels: How many objects and lists may lie in one another.
    """
    if not isinstance(value, _NESTS):
        return True
    each_of = value.values() if isinstance(value, dict) else value
    # Most lists are long and hold numbers: they must cost little.
    nested = [each for each in each_of if isinstance(each, _NESTS)]
    return levels > 0 and all(is_shallow(each, levels - 1) for each in nested)
