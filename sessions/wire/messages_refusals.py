"""The body of an error reply on the paths of Anthropic's Messages API.

Our one shape in another frame: beside `error` stands `"type": "error"`, and `error.type` is one of
that API's own words, by the status, because its clients decide by it. Message, param and code are
ours; the code stands in `details.error_code`, too, where newer SDKs read it.

Spec: docs/errors.md#by-path
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from http import HTTPStatus
from types import MappingProxyType
from typing import Final
from urllib.parse import unquote_to_bytes

from sessions.errors.client_visible import ClientVisibleError
from sessions.errors.turns import ContextLengthError

_PATH: Final = re.compile(rb"(?:/sessions/[^/]+)?/v1/messages(?:/count_tokens)?")
_OVERLOADED: Final = 529
# What else is from 400 up is the request's fault, from 500 up the server's.
_TYPES: Final[Mapping[int, str]] = MappingProxyType(
    {
        HTTPStatus.UNAUTHORIZED: "authentication_error",
        HTTPStatus.FORBIDDEN: "permission_error",
        HTTPStatus.NOT_FOUND: "not_found_error",
        HTTPStatus.REQUEST_TIMEOUT: "timeout_error",
        HTTPStatus.GONE: "not_found_error",
        HTTPStatus.REQUEST_ENTITY_TOO_LARGE: "request_too_large",
        HTTPStatus.TOO_MANY_REQUESTS: "rate_limit_error",
        HTTPStatus.SERVICE_UNAVAILABLE: "overloaded_error",
        HTTPStatus.GATEWAY_TIMEOUT: "timeout_error",
        _OVERLOADED: "overloaded_error",
    }
)
# By these words harnesses know that they have to shorten the conversation.
_TOO_LONG: Final = "prompt is too long: "


def is_messages_path(path: bytes) -> bool:
    """Whether the Messages API is spoken on a path (percent-encoded, without the query)."""
    return _PATH.fullmatch(unquote_to_bytes(path) if b"%" in path else path) is not None


def messages_body_of(error: ClientVisibleError) -> bytes:
    """The body for an error of ours, compact ASCII JSON."""
    kind = error_type_of(error.status)
    if error.status == HTTPStatus.SERVICE_UNAVAILABLE and not error.should_retry:
        kind = "api_error"  # it will not pass
    return messages_error_body(error.message, kind, error.param, error.code)


def messages_error_body(message: str, kind: str, param: str | None, code: str | None) -> bytes:
    """The error form of the Messages API, compact ASCII JSON.

    Args:
        message: For people.
        kind: One of the words of `error_type_of`.
        param: The request field at fault, or None.
        code: Stable, ours or the engine's, or None.
    """
    if code == ContextLengthError.code:
        message = _TOO_LONG + message
    error: dict[str, object] = {"type": kind, "message": message, "param": param, "code": code}
    if code is not None:
        error["details"] = {"error_code": code}
    return json.dumps({"type": "error", "error": error}, separators=(",", ":")).encode()


def error_type_of(status: int) -> str:
    """What the Messages API calls errors of a status from 400 up."""
    server_fault = status >= HTTPStatus.INTERNAL_SERVER_ERROR
    return _TYPES.get(status, "api_error" if server_fault else "invalid_request_error")
