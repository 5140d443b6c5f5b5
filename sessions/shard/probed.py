"""Probes on a shard's own socket, for operators: the same answers as on the public address.

On the public listener the front answers them and no probe comes this far.

Spec: docs/operations.md#probes
"""

from __future__ import annotations

from starlette.types import ASGIApp, Receive, Scope, Send

from sessions.lending.group import Group
from sessions.lending.probes import is_probe, probe_reply


class Probed:
    """Answers probes from the board, and has all else answered by the application."""

    def __init__(self, app: ASGIApp, group: Group) -> None:
        self._app = app
        self._group = group

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request."""
        is_asked = scope["type"] == "http" and scope["method"] in ("GET", "HEAD")
        if not (is_asked and is_probe(scope["raw_path"])):
            await self._app(scope, receive, send)
            return
        reply = probe_reply(scope["raw_path"], self._group)
        headers = [
            (b"content-type", reply.content_type.encode()),
            (b"content-length", str(len(reply.body)).encode()),
        ]
        await send({"type": "http.response.start", "status": reply.status, "headers": headers})
        await send({"type": "http.response.body", "body": reply.body})
