"""The raw bytes of the replies that the routing layer writes by itself.

Probes, refusals and last words are written by the router or the lone shard's gate, with no uvicorn
in between, and must look as if one had written them: status line, date and server first, then the
given headers, the length, and `connection` last. Nothing here decides what to answer.

Spec: docs/errors.md#routing-layer
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from email.utils import formatdate
from functools import lru_cache
from http import HTTPStatus
from typing import Final

from sessions.errors.client_visible import ClientVisibleError
from sessions.wire.refusals import refusal_body_of

SERVER: Final = "sessile"
# RFC 9110 section 8.6: no Content-Length in 1xx and 204; a 304 that has no body states none.
_LENGTHLESS: Final = frozenset({HTTPStatus.NO_CONTENT, HTTPStatus.NOT_MODIFIED})


def render_reply(
    status: int,
    headers: Sequence[tuple[str, str]],
    body: bytes,
    *,
    close: bool,
    head_only: bool = False,
) -> bytes:
    """Render a final reply.

    Args:
        status: From 200 up, known to `http.HTTPStatus`.
        headers: (name, value) pairs of our own making, names lower-case, order kept.
        body: The whole body; not sent with 204 and 304.
        close: Whether the reply says `connection: close`.
        head_only: For HEAD: the length of the body is told, the body is not sent.

    Returns:
        An HTTP/1.1 reply, ready to write.
    """
    lines = [
        f"HTTP/1.1 {status} {HTTPStatus(status).phrase}",
        f"date: {_date_of(int(time.time()))}",
        f"server: {SERVER}",
    ]
    lines += [f"{name}: {value}" for name, value in headers]
    has_body = status not in _LENGTHLESS
    if has_body:
        lines.append(f"content-length: {len(body)}")
    options = ["close"] if close else []
    options += [name for name, _ in headers if name == "upgrade"]  # RFC 9110 section 7.8
    if options:
        lines.append(f"connection: {', '.join(options)}")
    head = "\r\n".join([*lines, "", ""]).encode("latin-1")
    return head + body if has_body and not head_only else head


def render_error(
    error: ClientVisibleError, *, close: bool, head_only: bool = False, path: bytes = b""
) -> bytes:
    """Render an error in the shape of its path (see `refusal_body_of`) with `render_reply`."""
    body = refusal_body_of(error, path)
    return render_reply(error.status, error.headers, body, close=close, head_only=head_only)


@lru_cache(maxsize=1)
def _date_of(second: int) -> str:
    return formatdate(second, usegmt=True)
