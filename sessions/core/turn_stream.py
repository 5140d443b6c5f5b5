"""A streamed turn while its client waits: comments until it is there, then all of it.

The status is only promised with the first comment. A turn that ends before that is an ordinary
reply; one that fails after it is told as an event, and the stream ends without `[DONE]`.

Must not know how turns run.

Spec: docs/sessions.md#streams
"""

from __future__ import annotations

from http import HTTPStatus

from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from sessions.core.engine_errors import event_error_of
from sessions.core.events import KEEPALIVE_COMMENT, UNRECORDED_COMMENT, event_of
from sessions.core.replies import STREAM_HEADERS
from sessions.core.turn_wait import TurnWait
from sessions.errors import ClientVisibleError


class TurnStream(Response):
    """See the module docstring."""

    def __init__(self, waiting: TurnWait, *, keepalive_s: float) -> None:
        """Make a response that has not begun.

        Args:
            waiting: The client's wait; this response leaves it in the end.
            keepalive_s: Seconds between two comments.
        """
        super().__init__()
        self.raw_headers = list(STREAM_HEADERS)
        self._waiting = waiting
        self._keepalive_s = keepalive_s

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Send comments, then the events."""
        async with self._waiting as waiting:
            start = {"status": HTTPStatus.OK, "headers": self.raw_headers}
            await send({"type": "http.response.start", **start})
            while not waiting.is_done:
                comment = {"body": KEEPALIVE_COMMENT, "more_body": True}
                await send({"type": "http.response.body", **comment})
                if not await waiting.wait(self._keepalive_s):
                    break
            else:
                await send({"type": "http.response.body", "body": _events_of(waiting)})


def _events_of(waiting: TurnWait) -> bytes:
    try:
        done = waiting.result()
    except ClientVisibleError as error:
        return event_of(error.body.decode()) + UNRECORDED_COMMENT
    if done.body is None:
        error_body = event_error_of(done.engine.status, done.engine.body)
        return event_of(error_body.decode()) + UNRECORDED_COMMENT
    return done.body if done.is_recorded else UNRECORDED_COMMENT + done.body
