"""The body of a client's request where it has to be a JSON object.

Must not know what is in it.

Spec: docs/sessions.md#json
"""

from __future__ import annotations

from sessions.core.texts.json_text import JsonObject, parse_client_json
from sessions.errors.client_visible import RequestError


def parse_object_body(raw: bytes) -> JsonObject:
    """Parse a body.

    Args:
        raw: JSON whatever its content type says.

    Raises:
        RequestError: Not JSON, or not an object.
    """
    try:
        body = parse_client_json(raw)
    except ValueError as error:
        raise RequestError(f"the body is not valid JSON: {error}") from error
    if not isinstance(body, dict):
        raise RequestError("the body must be a JSON object")
    return body
