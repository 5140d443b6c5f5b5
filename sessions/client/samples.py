"""Training samples as the server sends them, decoded into numpy arrays.

The reply is one safetensors blob: tensors named `<field>.<index>`, and `_samples_meta`, a JSON
document in a tensor of bytes. The decoder is strict: a trainer must not learn from a reply that is
not exactly what the document says. numpy and safetensors are imported when they are first needed.

Spec: docs/samples.md#client
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from sessions.client.answers import Answer, parse_nothing
from sessions.client.errors import UnusableReplyError

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

_META: Final = "_samples_meta"
_TYPES: Final = {
    "tokens": "int64",
    "loss_mask": "uint8",
    "rollout_log_probs": "float64",
    "rollout_routed_experts": "int32",
    "rollout_indexer_topk": "int32",
}
_NULLABLE: Final = frozenset({"rollout_routed_experts", "rollout_indexer_topk"})
_MEMBERS: Final[Mapping[str, type]] = {
    "response": str,
    "response_length": int,
    "status": str,
    "weight_versions": list,
    "prefix_cache_info": dict,
    "metadata": dict,
    "nulls": list,
}
_MIN_RANK: Final = 2


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Sample:
    """One training sample.

    Attributes:
        tokens: Token ids, prompt and response, int64 [tokens].
        loss_mask: 1 for sampled tokens of the response, uint8 [response].
        rollout_log_probs: Of the response, 0.0 where the mask is 0, float64 [response].
        rollout_routed_experts: int32 [tokens - 1, ...], None if there are none.
        rollout_indexer_topk: int32 [tokens - 1, ...], None if there are none.
        response: The response as text, special tokens kept.
        response_length: Its tokens.
        status: `completed`, `truncated`, `aborted` or `pending`.
        weight_versions: One for each turn whose engine named it.
        cached_tokens: Sum over the turns.
        total_prompt_tokens: Sum over the turns.
        metadata: `lifecycle` and what else the server tells.
        reward: As assigned; None if none was.
    """

    tokens: NDArray[np.int64]
    loss_mask: NDArray[np.uint8]
    rollout_log_probs: NDArray[np.float64]
    rollout_routed_experts: NDArray[np.int32] | None
    rollout_indexer_topk: NDArray[np.int32] | None
    response: str
    response_length: int
    status: str
    weight_versions: list[str]
    cached_tokens: int
    total_prompt_tokens: int
    metadata: dict[str, Any]
    reward: Any = None


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Samples:
    """The samples of a session.

    Attributes:
        samples: One for each leaf that was picked; of a linear session one or none.
        session_metadata: As of the session's records.
        empty_reason: `no_records`, `all_truncated` or `none_picked`; None if there is a sample.
    """

    samples: list[Sample]
    session_metadata: dict[str, Any]
    empty_reason: str | None


def parse_samples(answer: Answer) -> Samples:
    """What `POST /sessions/{id}/samples` gives.

    Raises:
        StatusError: It was refused.
        UnusableReplyError: The reply is not exactly of that form; the message says where.
    """
    parse_nothing(answer)
    tensors = _tensors_in(answer.body)
    document = _document_in(tensors)
    told: list[Any] = document["samples"]
    samples = [_sample_of(index, members, tensors) for index, members in enumerate(told)]
    if tensors:
        raise _unusable(f"nothing refers to {', '.join(sorted(tensors))}")
    reason = document["empty_reason"]
    if bool(samples) != (reason is None):
        raise _unusable(f"{len(samples)} samples with the empty_reason {reason!r}")
    return Samples(
        samples=samples, session_metadata=document["session_metadata"], empty_reason=reason
    )


def _unusable(reason: str) -> UnusableReplyError:
    return UnusableReplyError(f"the reply is not the samples of a session: {reason}")


def _tensors_in(body: bytes) -> dict[str, NDArray[Any]]:
    import safetensors  # noqa: PLC0415 - see the module docstring
    import safetensors.numpy  # noqa: PLC0415 - likewise

    try:
        tensors: dict[str, NDArray[Any]] = safetensors.numpy.load(body)
    except (safetensors.SafetensorError, LookupError, TypeError, ValueError) as error:
        raise _unusable(f"no safetensors ({' '.join(str(error).split())})") from error
    return tensors


def _document_in(tensors: dict[str, NDArray[Any]]) -> dict[str, Any]:
    """The document, taken out of the tensors."""
    meta = tensors.pop(_META, None)
    if meta is None or meta.dtype.name != "uint8" or meta.ndim != 1:
        raise _unusable(f"no {_META} of bytes")
    try:
        document = json.loads(meta.tobytes())
    except ValueError as error:
        raise _unusable(f"{_META} is no JSON ({error})") from error
    names = {"samples", "session_metadata", "empty_reason"}
    if (
        not isinstance(document, dict)
        or not names <= document.keys()
        or not isinstance(document["samples"], list)
        or not isinstance(document["session_metadata"], dict)
        or not isinstance(document["empty_reason"], str | None)
    ):
        raise _unusable(f"{_META} lacks samples, session_metadata or empty_reason")
    found: dict[str, Any] = document
    return found


def _sample_of(index: int, members: object, tensors: dict[str, NDArray[Any]]) -> Sample:
    if not isinstance(members, dict):
        raise _unusable(f"sample {index} is no object")
    for name, kind in _MEMBERS.items():
        if type(members.get(name)) is not kind:
            raise _unusable(f"sample {index} has no {name}")
    cache = members["prefix_cache_info"]
    counts = [cache.get("cached_tokens"), cache.get("total_prompt_tokens")]
    if not all(type(count) is int for count in counts):
        raise _unusable(f"sample {index} has no counts in its prefix_cache_info")
    arrays = dict(_arrays_of(index, members["nulls"], tensors))
    _check_lengths(index, arrays, members["response_length"])
    return Sample(
        **arrays,
        **{name: members[name] for name in _MEMBERS if name not in ("nulls", "prefix_cache_info")},
        cached_tokens=counts[0],
        total_prompt_tokens=counts[1],
        reward=members.get("reward"),
    )


def _arrays_of(
    index: int, nulls: list[Any], tensors: dict[str, NDArray[Any]]
) -> Iterator[tuple[str, Any]]:
    """(field, array or None) of one sample, taken out of the tensors."""
    if not all(isinstance(name, str) and name in _NULLABLE for name in nulls):
        raise _unusable(f"sample {index} has the nulls {nulls!r}")
    for field, kind in _TYPES.items():
        name = f"{field}.{index}"
        if field in nulls:
            yield field, None  # a tensor of that name is left, and refused for it
            continue
        array = tensors.pop(name, None)
        if array is None:
            raise _unusable(f"no tensor {name}")
        if array.dtype.name != kind:
            raise _unusable(f"{name} is {array.dtype.name} instead of {kind}")
        yield field, array


def _check_lengths(index: int, arrays: Mapping[str, Any], response_length: int) -> None:
    tokens = arrays["tokens"]
    if tokens.ndim != 1 or not 0 <= response_length <= len(tokens):
        raise _unusable(f"tokens.{index} has the shape {tokens.shape}")
    rows = max(0, len(tokens) - 1)
    for field, array in arrays.items():
        if array is None or field == "tokens":
            continue
        is_right = (
            array.ndim >= _MIN_RANK and array.shape[0] == rows
            if field in _NULLABLE
            else array.shape == (response_length,)
        )
        if not is_right:
            raise _unusable(f"{field}.{index} has the shape {array.shape}")
