"""The body of a chat request, checked as an SGLang server checks it.

`parse_body` gives the JSON object (for the journal) and the typed fields. Unknown fields are
ignored, as engines ignore them; a wrong type of a known one is a 400 in the flat form.

Spec: docs/sim.md#requests
"""

from __future__ import annotations

import json
from typing import Annotated, Any, Final

import msgspec
import orjson

from sessions.errors.unseen import SimRefusalError
from sessions.sim.script import Count, Script

BAD_REQUEST: Final = "Bad Request"  # the type SGLang gives a body that does not validate
_CHOICES_MAX: Final = 128

Flag = bool | None
Limit = Count | None


class ChatBody(msgspec.Struct, frozen=True, kw_only=True):
    """The fields that are read; names and meanings are SGLang's, `sim` is ours.

    Attributes:
        messages: Only their roles and texts are looked at when `input_ids` is given.
        input_ids: The prompt's token ids; templates are skipped.
        sim: The script, or None.
    """

    messages: list[dict[str, Any]]
    model: str | None = None
    input_ids: list[Count] | None = None
    max_tokens: Limit = None
    max_completion_tokens: Limit = None
    stop: str | list[str] | None = None
    tools: list[dict[str, Any]] | None = None
    tool_choice: str | dict[str, Any] | None = None
    chat_template_kwargs: dict[str, Any] | None = None
    logprobs: Flag = None
    top_logprobs: Limit = None
    return_meta_info: Flag = None
    return_prompt_token_ids: Flag = None
    return_token_ids: Flag = None
    return_routed_experts: Flag = None
    routed_experts_start_len: Limit = None
    no_stop_trim: Flag = None
    skip_special_tokens: Flag = None
    n: Annotated[int, msgspec.Meta(ge=1, le=_CHOICES_MAX)] | None = None
    seed: int | None = None
    stream: Flag = None
    stream_options: dict[str, Any] | None = None
    sim: Script | None = None

    @property
    def script(self) -> Script:
        """The script; an empty one if there is none."""
        return self.sim if self.sim is not None else Script()

    @property
    def completion_limit(self) -> int | None:
        """Tokens that the completion may have, or None."""
        return self.max_tokens if self.max_completion_tokens is None else self.max_completion_tokens

    @property
    def stops(self) -> list[str]:
        """The stop strings, none of them empty."""
        given = [self.stop] if isinstance(self.stop, str) else self.stop or []
        return [text for text in given if text]

    @property
    def may_think(self) -> bool:
        """Whether the template's switch leaves thinking on."""
        return (self.chat_template_kwargs or {}).get("enable_thinking") is not False

    @property
    def may_call(self) -> bool:
        """Whether tool calls are parsed out of the reply."""
        return bool(self.tools) and self.tool_choice != "none"


def parse_body(raw: bytes, vocab_size: int) -> tuple[dict[str, Any], ChatBody]:
    """Parse and check a body.

    Args:
        raw: As received.
        vocab_size: Prompt and scripted ids must be below this.

    Returns:
        The JSON object and its typed fields.

    Raises:
        SimRefusalError: 400: no JSON object, a field of the wrong type, an id outside of the
            vocabulary, or fields that exclude each other.
    """
    document = parse_json(raw)
    body = body_of(document)
    if body.input_ids is not None and not body.input_ids:
        raise SimRefusalError("input_ids must not be empty", param="input_ids")
    script = body.script
    for param, ids in (
        ("input_ids", body.input_ids),
        ("sim.token_ids", script.token_ids),
        ("sim.force_ids", script.force_ids),
    ):
        if ids and max(ids) >= vocab_size:
            message = f"token id {max(ids)} is out of the vocabulary of {vocab_size} tokens"
            raise SimRefusalError(message, param=param)
    if body.stream:
        _refuse_with_stream(body)
    return document, body


def parse_json(raw: bytes) -> Any:  # noqa: ANN401 - JSON
    """Parse a body as engines do, which take what Python's own parser takes.

    Raises:
        SimRefusalError: 400: no JSON.
    """
    try:
        return orjson.loads(raw)
    except orjson.JSONDecodeError:
        try:
            return json.loads(raw)  # NaN, lone surrogates
        except (ValueError, RecursionError) as error:
            raise _invalid(error) from error


def body_of(document: object) -> ChatBody:
    """The typed fields of a parsed body.

    Raises:
        SimRefusalError: 400: no object, or a field of the wrong type.
    """
    try:
        body = msgspec.convert(document, ChatBody)
        (body.model or "").encode()  # it is echoed
    except (ValueError, msgspec.ValidationError) as error:
        raise _invalid(error) from error
    return body


def _invalid(error: Exception) -> SimRefusalError:
    return SimRefusalError(f"1 validation error: {error}", type=BAD_REQUEST)


def _refuse_with_stream(body: ChatBody) -> None:
    for param in ("return_meta_info", "return_token_ids", "return_prompt_token_ids"):
        if getattr(body, param):
            raise SimRefusalError(f"{param} is not supported with stream", param=param)
