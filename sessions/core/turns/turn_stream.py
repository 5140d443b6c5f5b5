"""A streamed turn while its client waits: signs of life until it is there, then all of it.

The status is only promised with the first of these. A turn that ends before that is an ordinary
reply; one that fails after it is told as an event, and the stream ends with it.

Must not know how turns run.

Spec: docs/sessions.md#streams
"""

from __future__ import annotations

from http import HTTPStatus

from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from sessions.core.attempts.turn_wait import TurnWait
from sessions.core.forms.chat_events import UNRECORDED_COMMENT
from sessions.core.forms.chat_form import ChatForm
from sessions.core.http_exchange.replies import STREAM_HEADERS
from sessions.errors.client_visible import ClientVisibleError


class TurnStream(Response):
    """See the module docstring."""

    def __init__(self, waiting: TurnWait, form: ChatForm, *, keepalive_s: float) -> None:
        """Make a response that has not begun.

        Args:
            waiting: The client's wait; this response leaves it in the end.
            form: In which the client is told.
            keepalive_s: Seconds between two signs of life.
        """
        super().__init__()
        self.raw_headers = list(STREAM_HEADERS)
        self._waiting = waiting
        self._form = form
        self._keepalive_s = keepalive_s

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Send signs of life, then the events."""
        async with self._waiting as waiting:
            start = {"status": HTTPStatus.OK, "headers": self.raw_headers}
            await send({"type": "http.response.start", **start})
            while not waiting.is_done:
                sign = {"body": self._form.keepalive, "more_body": True}
                await send({"type": "http.response.body", **sign})
                if not await waiting.wait(self._keepalive_s):
                    break
            else:
                await send({"type": "http.response.body", "body": _events_of(waiting, self._form)})


def _events_of(waiting: TurnWait, form: ChatForm) -> bytes:
    try:
        done = waiting.result()
    except ClientVisibleError as error:
        return form.error_event_of(error) + UNRECORDED_COMMENT
    if done.body is None:
        return form.refusal_event_of(done.engine) + UNRECORDED_COMMENT
    return done.body if done.is_recorded else UNRECORDED_COMMENT + done.body
