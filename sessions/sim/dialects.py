"""The engines that the simulated one can be: what they read, how they count, what they say.

Must not know HTTP.

Spec: docs/sim.md#dialects
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, Final, Protocol

from sessions.errors.unseen import SimRefusalError
from sessions.sim.body import ChatBody, parse_body
from sessions.sim.experts import Blob, Layout, Rows
from sessions.sim.npy_experts import NpyLayout
from sessions.sim.options import Dialect
from sessions.sim.reply import Origin, document_of
from sessions.sim.sampler import Sample, Sampler
from sessions.sim.vllm_body import parse_vllm_body
from sessions.sim.vllm_reply import vllm_document_of


class MakesDocument(Protocol):
    """Makes the document of a reply."""

    def __call__(
        self,
        body: ChatBody,
        prompt: Sequence[int],
        samples: Sequence[Sample],
        *,
        blobs: Sequence[Blob],
        origin: Origin,
        sampler: Sampler,
    ) -> dict[str, Any]:
        """See `document_of`."""
        ...


class MakesLayout(Protocol):
    """Makes a layout of rows."""

    def __call__(self, *, layers: int, topk: int, experts: int, seed: int, pad: int) -> Rows:
        """See `Layout`."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class SimDialect:
    """One kind of engine.

    Attributes:
        parse_body: Raw body and size of the vocabulary to the JSON object and its fields.
        check_start: Refuses a first row of experts, given it and the number of prompt tokens.
        layout_of: Makes the rows of experts.
        document_of: Makes a reply.
        error_of: The JSON of an error.
    """

    parse_body: Callable[[bytes, int], tuple[dict[str, Any], ChatBody]]
    check_start: Callable[[int, int], None]
    layout_of: MakesLayout
    document_of: MakesDocument
    error_of: Callable[[SimRefusalError], dict[str, Any]]


def _check_sglang_start(start: int, prompt_count: int) -> None:
    if start > prompt_count:
        message = f"routed_experts_start_len {start} is over the {prompt_count} prompt tokens"
        raise SimRefusalError(message, param="routed_experts_start_len")


def _check_vllm_start(start: int, prompt_count: int) -> None:
    if start > prompt_count:
        field = "routed_experts_prompt_start"
        raise SimRefusalError(
            f"{field} must be between 0 and the prompt length ({prompt_count}), inclusive."
            f" (parameter={field}, value={start})",
            param=field,
        )


def _flat_error(error: SimRefusalError) -> dict[str, Any]:
    return {"object": "error", **_error_fields(error)}


def _wrapped_error(error: SimRefusalError) -> dict[str, Any]:
    return {"error": _error_fields(error)}


def _error_fields(error: SimRefusalError) -> dict[str, Any]:
    return {
        "message": error.message,
        "type": error.type,
        "param": error.param,
        "code": error.status,
    }


DIALECTS: Final[Mapping[Dialect, SimDialect]] = MappingProxyType(
    {
        Dialect.SGLANG: SimDialect(
            parse_body=parse_body,
            check_start=_check_sglang_start,
            layout_of=Layout,
            document_of=document_of,
            error_of=_flat_error,
        ),
        Dialect.VLLM: SimDialect(
            parse_body=parse_vllm_body,
            check_start=_check_vllm_start,
            layout_of=NpyLayout,
            document_of=vllm_document_of,
            error_of=_wrapped_error,
        ),
    }
)
