"""Replies as Starlette responses: header lists kept as they are.

Starlette's own constructors take headers as a mapping, which would merge repeated ones.

Must not know sessions.

Spec: docs/sessions.md#replies
"""

from __future__ import annotations

from collections.abc import Iterable
from http import HTTPStatus
from typing import Final

from starlette.responses import Response

from sessions.core.engine_replies.engine_errors import error_bytes_of, is_error
from sessions.core.engine_replies.replay_fields import without_replay
from sessions.core.http_exchange.headers import TURN_RECORDED, reply_headers_of
from sessions.core.texts.json_text import Json, render_json
from sessions.engine.engine import EngineReply

JSON_TYPE: Final = (b"content-type", b"application/json")
UNRECORDED: Final = (TURN_RECORDED, b"false")
STREAM_HEADERS: Final = (
    (b"content-type", b"text/event-stream; charset=utf-8"),
    (b"cache-control", b"no-cache"),
    (b"x-accel-buffering", b"no"),
)


def reply_of(
    status: int, headers: Iterable[tuple[bytes, bytes]] = (), body: bytes = b""
) -> Response:
    """A response of a status, headers in order and a body, with its content length."""
    response = Response(body, status_code=status)
    response.raw_headers = [*headers, *response.raw_headers]
    return response


def json_reply_of(value: Json) -> Response:
    """A 200 response with a value as JSON."""
    return reply_of(HTTPStatus.OK, [JSON_TYPE], render_json(value))


def passed_on(reply: EngineReply, *extra: tuple[bytes, bytes]) -> Response:
    """The engine's reply for the client: without replay fields, an error that is no JSON wrapped.

    Args:
        reply: The engine's reply, any status.
        extra: Further headers.

    Returns:
        The response; its body is the engine's own bytes where nothing had to change.
    """
    body = without_replay(reply.body)
    is_rewritten = body is not None
    if body is None:
        body = reply.body
    own_type = (b"content-type", reply.header(b"content-type") or b"application/json")
    kind = [own_type] if is_rewritten else []
    if is_error(reply.status):
        sendable = error_bytes_of(reply.status, body)
        if sendable is not body:
            body, is_rewritten, kind = sendable, True, [JSON_TYPE]
    headers = reply_headers_of(reply.headers, is_rewritten=is_rewritten)
    return reply_of(reply.status, [*headers, *kind, *extra], body)
