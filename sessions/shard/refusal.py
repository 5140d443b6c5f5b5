"""ASGI applications that answer with an error in the one error shape.

`Refusal` answers every request with one error, without reading the body. `Guarded` runs an
application and turns an exception that nobody caught, and a reply that never began, into a 500 of
the same shape, so that no client gets uvicorn's plain-text error page.

Spec: docs/errors.md
"""

from __future__ import annotations

import logging

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from sessions.errors.client_visible import ClientVisibleError, InternalError
from sessions.wire.refusals import refusal_body_of

logger = logging.getLogger(__name__)


class Refusal:
    """Answers with one error; the body is left unread."""

    def __init__(self, error: ClientVisibleError) -> None:
        self._error = error

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Send the reply."""
        del receive
        body = refusal_body_of(self._error, scope.get("raw_path") or b"")
        headers = [(name.encode(), value.encode()) for name, value in self._error.headers]
        headers.append((b"content-length", str(len(body)).encode()))
        await send(
            {"type": "http.response.start", "status": self._error.status, "headers": headers}
        )
        await send({"type": "http.response.body", "body": body})


class Guarded:
    """Runs an application; a failure becomes a 500, or a cut reply if one began."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Run the application once."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        has_begun = is_gone = False

        async def noted_receive() -> Message:
            nonlocal is_gone
            message = await receive()
            is_gone = message["type"] == "http.disconnect"
            return message

        async def noted_send(message: Message) -> None:
            nonlocal has_begun
            await send(message)
            has_begun = True

        try:
            await self._app(scope, noted_receive, noted_send)
        except Exception:
            if has_begun:
                raise
            logger.exception("application failed path=%s", scope["path"])
        else:
            if has_begun or is_gone:
                return
            logger.error("application sent no reply path=%s", scope["path"])
        error = InternalError("the server failed to serve this request; its log says why")
        await Refusal(error)(scope, receive, send)
