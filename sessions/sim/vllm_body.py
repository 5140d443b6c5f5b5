"""The body of a chat request, read as vLLM's server reads it.

vLLM's fields are put under the names that the rest of the simulated engine knows; SGLang's own
fields mean nothing here. `vllm_xargs.force_ids` is what a plug-in of our tests reads in a real
engine. A list of ids that is empty is no list: the messages are rendered, without a word. Ids that
are no plain numbers break the request, as they do in 0.30 (of which a boolean makes it hang, which
is not simulated).

Spec: docs/sim.md#vllm
"""

from __future__ import annotations

from typing import Any, Final

from sessions.errors.unseen import SimRefusalError
from sessions.sim.body import ChatBody, body_of, parse_json

_UNKNOWN: Final = (
    "input_ids",
    "return_meta_info",
    "return_prompt_token_ids",
    "return_routed_experts",
    "routed_experts_start_len",
    "no_stop_trim",
)
_IDS: Final = "prompt_token_ids"


def parse_vllm_body(raw: bytes, vocab_size: int) -> tuple[dict[str, Any], ChatBody]:
    """Parse and check a body.

    Args:
        raw: As received.
        vocab_size: Prompt and forced ids must be below this.

    Returns:
        The JSON object and its typed fields, under SGLang's names.

    Raises:
        SimRefusalError: 400: no JSON object, a field of the wrong type, an id outside of the
            vocabulary; 500: ids that are no numbers.
    """
    document = parse_json(raw)
    fields: dict[str, Any] = {}
    if isinstance(document, dict):
        fields = {key: value for key, value in document.items() if key not in _UNKNOWN}
        fields["return_prompt_token_ids"] = document.get("return_token_ids")
        fields["return_routed_experts"] = document.get("stream") is not True
        fields["routed_experts_start_len"] = document.get("routed_experts_prompt_start")
        fields["no_stop_trim"] = document.get("include_stop_str_in_output")
        fields["input_ids"] = _ids_in(document, vocab_size)
        extra = document.get("vllm_xargs")
        if isinstance(extra, dict) and "force_ids" in extra:
            fields["sim"] = {**(document.get("sim") or {}), "force_ids": extra["force_ids"]}
    body = body_of(fields if isinstance(document, dict) else document)
    for ids in (body.script.force_ids, body.script.token_ids):
        _check_ids(ids or [], vocab_size)
    return document, body


def _check_ids(ids: list[int], vocab_size: int) -> None:
    for token_id in ids:
        if not 0 <= token_id < vocab_size:
            raise SimRefusalError(f"Token id {token_id} is out of vocabulary")


def _ids_in(document: dict[str, Any], vocab_size: int) -> list[int] | None:
    """The prompt's ids, or None for none.

    Raises:
        SimRefusalError: They are there and no list of ids.
    """
    transfer = document.get("kv_transfer_params")
    if transfer is None:
        return None
    if not isinstance(transfer, dict):
        message = "1 validation error: kv_transfer_params should be a valid dictionary"
        raise SimRefusalError(message, type="Bad Request", param="body.kv_transfer_params")
    found = transfer.get(_IDS)
    if not found:
        return None
    if not isinstance(found, list) or any(type(token_id) is not int for token_id in found):
        raise SimRefusalError("", status=500, type="InternalServerError")
    _check_ids(found, vocab_size)
    return found
